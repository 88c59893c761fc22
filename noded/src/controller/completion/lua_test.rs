#![allow(clippy::unwrap_used)]
use super::super::testing::{completed, folder};
use super::*;
use garrick_model::ids::ArrayTask;

/// What the script wrote of runs, one after the other.
async fn told(script: &str, runs: &[Completed]) -> (Vec<Result<(), String>>, String) {
    let place = folder();
    let told = place.join("told");
    fs::write(place.join(SCRIPT), script.replace("TOLD", &told.display().to_string())).unwrap();
    let lua = LuaScript::new(&place, "maple");
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.push(lua.tell(run).await);
    }
    let text = fs::read_to_string(&told).unwrap_or_default();
    fs::remove_dir_all(&place).unwrap();
    (outcomes, text)
}

const DUMP: &str = r#"
count = 0
function slurm_jobcomp_log_record(job_rec)
    count = count + 1
    local names = {}
    for name, value in pairs(job_rec) do
        if name ~= "argv" then names[#names + 1] = name .. "=" .. tostring(value) end
    end
    table.sort(names)
    local out = io.open("TOLD", "a")
    out:write(count, "|", slurm.CLUSTER_NAME, "|", table.concat(names, "|"), "|", tostring(job_rec.nothing), "\n")
    out:close()
    slurm.log_info("%s is over", job_rec.job_id)
    return slurm.SUCCESS
end
"#;

#[tokio::test]
async fn a_record_has_the_fields_of_slurms() {
    let mut array = completed();
    array.row.array_task = Some(ArrayTask { array_job: array.row.job, index: 4 });
    let (outcomes, text) = told(DUMP, &[completed(), array]).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(text.starts_with("1|maple|") && text.contains("\n2|maple|"), "{text}");
    for field in [
        "|array_task_id=4294967294.0|",
        "|comment=hi|",
        "|end_time=1000000015.0|",
        "|exit_code=768.0|",
        "|job_id=7.0|",
        "|job_state=5.0|",
        "|name=a b|",
        "|nice=2147483648.0|",
        "|nodes=n1|",
        "|partition=main|",
        "|script=#!/bin/sh",
        "|start_time=1000000005.0|",
        "|time_limit=6.0|",
        "|total_cpus=2.0|",
        "|total_nodes=1.0|",
        "|tres_fmt_alloc_str=cpu=2,mem=1000M,node=1,billing=2,gres/gpu=1|",
        "|user_id=1001.0|",
        "|work_dir=/home/alice|",
    ] {
        let shown = text.replace("\nexit 3\n", "");
        assert!(shown.contains(field), "{field} in {shown}");
    }
    assert!(text.contains("|array_task_id=4.0|") && text.contains("|nil\n"), "{text}");
}

#[tokio::test]
async fn a_script_that_fails_stops_nothing() {
    let script = "function slurm_jobcomp_log_record(job_rec)\n\
                  if job_rec.name == 'bad' then error('oops') end\n\
                  if job_rec.name == 'refused' then return -1 end\n\
                  local out = io.open('TOLD', 'a')\nout:write(job_rec.name, '\\n')\nout:close()\nreturn 0\nend\n";
    let named = |name: &str| {
        let mut run = completed();
        run.row.name = name.to_owned();
        run
    };
    let (outcomes, text) = told(script, &[named("bad"), named("refused"), named("good")]).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(text, "good\n");
}

/// The line is what an administrator looks for.
#[test]
fn an_error_names_the_line() {
    let place = folder();
    let path = place.join(SCRIPT);
    fs::write(&path, "function slurm_jobcomp_log_record(job_rec)\n  return job_rec.nothing.more\nend\n").unwrap();
    let mut worker = Worker { path, cluster: "maple".to_owned(), script: None };
    let error = call(worker.script().unwrap(), &completed()).unwrap_err().to_string();
    assert!(error.contains("jobcomp.lua:2: "), "{error}");
    fs::remove_dir_all(&place).unwrap();
}

#[tokio::test]
async fn without_a_script_a_run_waits_until_there_is_one() {
    let place = folder();
    let lua = LuaScript::new(&place, "maple");
    let missing = lua.tell(&completed()).await.unwrap_err();
    assert!(missing.contains("cannot read"), "{missing}");
    let script = place.join(SCRIPT);
    fs::write(&script, "function other() end").unwrap();
    let without = lua.tell(&completed()).await.unwrap_err();
    assert!(without.contains("has no function slurm_jobcomp_log_record"), "{without}");
    fs::write(&script, "function slurm_jobcomp_log_record(job_rec) return 0 end -- it is there").unwrap();
    lua.tell(&completed()).await.unwrap();
    fs::remove_dir_all(&place).unwrap();
}

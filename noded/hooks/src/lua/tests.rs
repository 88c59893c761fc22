#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{World, desc, script};
use garrick_model::{spec::NodeCount, time::TimeLimit};
use std::fs;

fn submitted(body: &str, spec: JobSpec) -> Result<Called<JobSpec>, ScriptError> {
    let (_folder, path) = script(&format!("function slurm_job_submit(job_desc, part_list, submit_uid)\n{body}\nend\n"));
    let sight: Arc<dyn SiteSight> = Arc::new(World::default());
    Script::load(&path, "site")?.submit(desc(spec), &World::default().shown(), &sight)
}

#[test]
fn fields_are_read_and_set_in_slurms_names_and_units() {
    let spec = JobSpec { time_limit: Some(TimeLimit::Secs(5400)), ..JobSpec::default() };
    let body = "
        if job_desc.min_nodes ~= slurm.NO_VAL or job_desc.partition ~= nil then return slurm.ERROR end
        if job_desc.time_limit ~= 90 or job_desc.user_name ~= 'games' or submit_uid ~= 5 then return slurm.ERROR end
        job_desc.partition = 'debug'
        job_desc.min_nodes = 2
        job_desc.time_limit = math.min(job_desc.time_limit, part_list['debug'].max_time)
        job_desc.environment['SITE'] = 'x=y'
        job_desc.environment['HOME'] = nil
        job_desc.no_such_field = 1
        slurm.log_user('%u tasks, %s', 7, job_desc.name)
        slurm.user_msg('two\\nlines')
        return slurm.SUCCESS";
    let environment = Arc::new(vec!["HOME=/root".to_owned().into_bytes().into(), b"A=b".to_vec().into()]);
    let called = submitted(body, JobSpec { name: "own".to_owned(), environment, ..spec }).unwrap();
    assert_eq!((called.code, called.said), (0, ["7 tasks, own", "two", "lines"].map(str::to_owned).to_vec()));
    let made = called.request;
    assert_eq!(made.partitions, ["debug"]);
    assert_eq!(made.nodes, Some(NodeCount { min: 2, max: None }));
    assert_eq!(made.time_limit, Some(TimeLimit::Secs(3600)));
    let texts: Vec<_> = made.environment.iter().map(|entry| String::from_utf8_lossy(entry).into_owned()).collect();
    assert_eq!(texts, ["A=b", "SITE=x=y"]);
}

#[test]
fn a_script_refuses_by_a_number_and_accepts_with_whatever_is_none() {
    for (body, code) in [
        ("return slurm.ERROR", -1),
        ("return slurm.ESLURM_INVALID_PARTITION_NAME", 2000),
        ("return slurm.SUCCESS", 0),
        ("return", 0),
        ("return 'no'", 0),
    ] {
        assert_eq!(submitted(body, JobSpec::default()).unwrap().code, code, "{body}");
    }
}

#[test]
fn errors_name_file_and_line() {
    let failed = |body: &str| submitted(body, JobSpec::default()).unwrap_err();
    let nil = failed("local x = nil\nreturn x.y");
    assert!(nil.to_string().contains("job_submit.lua:3: attempt to index a nil value"), "{nil}");
    assert_eq!(nil.number(), 7405);
    let bad = failed("\n\njob_desc.time_limit = 'soon'");
    let said = bad.to_string();
    assert!(
        said.contains("job_submit.lua:4: ") && said.contains("job_desc.time_limit: \"soon\" is not a whole"),
        "{bad}"
    );
    let (_folder, path) = script("function slurm_job_submit(\n");
    let broken = Script::load(&path, "site").unwrap_err();
    assert!(broken.to_string().contains("job_submit.lua:"), "{broken}");
    assert_eq!(broken.number(), 7401);
    let (folder, path) = script("");
    fs::write(&path, "function slurm_job_submit() end").unwrap();
    let half = Script::load(&path, "site").unwrap_err();
    assert_eq!(half.to_string(), format!("{} has no function slurm_job_modify", path.display()));
    drop(folder);
    assert_eq!(Script::load(&path, "site").unwrap_err().number(), 7401, "it is gone");
}

#[test]
fn a_script_has_only_so_much_memory() {
    let error = submitted(
        "local all = {}\nwhile true do all[#all + 1] = string.rep('x', 1 << 20) .. #all end",
        JobSpec::default(),
    );
    assert_eq!(error.unwrap_err().number(), 7406);
}

#[test]
fn a_script_sees_jobs_partitions_and_reservations_and_keeps_its_variables() {
    let body = "
        calls = (calls or 0) + 1
        local seen = {}
        for id, job in pairs(slurm.jobs) do seen[#seen + 1] = id .. '=' .. job.name end
        for name, one in pairs(slurm.reservations) do seen[#seen + 1] = name end
        seen[#seen + 1] = slurm.jobs['7'].user_name
        seen[#seen + 1] = tostring(slurm.jobs[8])
        seen[#seen + 1] = slurm.CLUSTER_NAME
        slurm.log_user(table.concat(seen, ' ') .. ' ' .. calls)";
    let (_folder, path) = script(&format!("function slurm_job_submit(job_desc, part_list, submit_uid)\n{body}\nend\n"));
    let world = World::default();
    let (shown, sight) = (world.shown(), Arc::new(world) as Arc<dyn SiteSight>);
    let script = Script::load(&path, "site").unwrap();
    for calls in 1..=2 {
        let called = script.submit(desc(JobSpec::default()), &shown, &sight).unwrap();
        assert_eq!(called.said, [format!("7=old night games nil site {calls}")]);
    }
}

#[test]
fn a_change_has_what_changes_and_takes_over_what_is_set() {
    let (_folder, path) = script(
        "function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
            if job_desc.comment ~= 'new' or job_desc.time_limit ~= slurm.NO_VAL then return slurm.ERROR end
            if job_rec.name ~= 'old' then return slurm.ERROR end
            job_desc.time_limit = 7
            job_desc.comment = job_desc.comment .. ' by ' .. modify_uid
            return slurm.SUCCESS
        end",
    );
    let world = World::default();
    let (shown, job) = (world.shown(), world.jobs().remove(0));
    let sight = Arc::new(world) as Arc<dyn SiteSight>;
    let change = JobChange { comment: Some("new".to_owned()), nice: Some(3), ..JobChange::default() };
    let called = Script::load(&path, "site").unwrap().modify(desc(JobSpec::default()), (&job, &change), &shown, &sight);
    let called = called.unwrap();
    assert_eq!(called.code, 0);
    let want = JobChange { comment: Some("new by 5.0".to_owned()), time_limit: Some(TimeLimit::Secs(420)), ..change };
    assert_eq!(called.request, want);
}

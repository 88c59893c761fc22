//! Where steps are shown: a table, objects, counts, a log.

use super::{Form, Request};
use crate::query::choices;
use garrick_asking::run_records::Part;
use garrick_model::messages::records::{RecordedOrigin, RecordedRun, RecordedStep};
use garrick_render::{
    clock::Clock,
    steps::{
        Row, chart,
        fields::{self, Field},
        joblog, json, summary,
    },
};
use std::{
    cmp::Reverse,
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

/// Where rows go as they come.
pub(super) struct Shown<'a> {
    request: &'a Request,
    out: &'a mut dyn Write,
    clock: Clock,
    run: Option<RecordedRun>,
    /// Rows that wait for the order.
    gathered: Vec<(RecordedOrigin, RecordedStep)>,
    pub(super) summary: summary::Summary,
    joblog: Option<joblog::Joblog<BufWriter<File>>>,
    rows: u64,
    failure: Option<io::Error>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(request: &'a Request, out: &'a mut dyn Write) -> io::Result<Self> {
        let named = |path: &PathBuf| {
            let file = File::create(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            joblog::Joblog::new(BufWriter::new(file))
        };
        let joblog = request.joblog.as_ref().map(named).transpose()?;
        let shown = Self {
            request,
            out,
            clock: Clock::system(),
            run: None,
            gathered: Vec::new(),
            summary: summary::Summary::default(),
            joblog,
            rows: 0,
            failure: None,
        };
        match &request.form {
            Form::Json => shown.out.write_all(b"[")?,
            Form::Table(layout) if request.heading => {
                layout.write(shown.out, true, &[] as &[Row<'_>], |f| fields::title(*f), |_, _| String::new())?;
            }
            _ => {}
        }
        Ok(shown)
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.failure.is_some()
    }

    /// Everything taken so far leaves this process.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.joblog.as_mut().map_or(Ok(()), joblog::Joblog::flush)
    }

    /// False: nothing more is wanted.
    pub(super) fn take(&mut self, part: Part) -> bool {
        let written = match part {
            Part::Run(run) => {
                self.summary.begin(&run, self.clock.now);
                self.run = Some(run);
                Ok(())
            }
            Part::Batch(_) => Ok(()),
            Part::Steps(origins, steps) => self.steps(&origins, steps),
        };
        self.failure = written.err();
        self.failure.is_none()
    }

    fn steps(&mut self, origins: &[RecordedOrigin], steps: Vec<RecordedStep>) -> io::Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let origin = |step: &RecordedStep| {
            origins.get(step.origin as usize).cloned().unwrap_or_else(|| RecordedOrigin::named(""))
        };
        let written = if self.request.order.is_some() {
            self.gathered.extend(steps.into_iter().map(|step| (origin(&step), step)));
            Ok(())
        } else {
            let with: Vec<_> = steps.into_iter().map(|step| (origin(&step), step)).collect();
            self.show(&run, &with)
        };
        self.run = Some(run);
        written
    }

    pub(super) fn end_of_run(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (Some(order), Some(run)) = (self.request.order, self.run.take()) else { return Ok(()) };
        let mut gathered = std::mem::take(&mut self.gathered);
        let now = self.clock.now;
        let key = |(_, step): &(RecordedOrigin, RecordedStep)| match order.key {
            Field::End => step.end.map_or(i64::MAX, |at| at.0),
            Field::Start => step.start.map_or(i64::MAX, |at| at.0),
            Field::Elapsed => step.elapsed_ms(now).map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            Field::CpuTime => i64::try_from(step.usage.user_us + step.usage.system_us).unwrap_or(i64::MAX),
            Field::MaxRss => i64::try_from(step.usage.max_rss_kib).unwrap_or(i64::MAX),
            Field::Exit => i64::from(step.exit.shell_code()),
            _ => 0,
        };
        if order.turned {
            gathered.sort_by_key(|row| Reverse((key(row), row.1.key, row.1.attempt)));
        } else {
            gathered.sort_by_key(|row| (key(row), row.1.key, row.1.attempt));
        }
        self.show(&run, &gathered)
    }

    fn show(&mut self, run: &RecordedRun, steps: &[(RecordedOrigin, RecordedStep)]) -> io::Result<()> {
        let rows: Vec<Row<'_>> =
            steps.iter().map(|(origin, step)| Row { run, origin, step, user: choices::user_name }).collect();
        if matches!(self.request.form, Form::Summary) || self.request.svg.is_some() {
            rows.iter().for_each(|row| self.summary.add(row));
        }
        if let Some(joblog) = &mut self.joblog {
            rows.iter().try_for_each(|row| joblog.add(row))?;
        }
        match &self.request.form {
            Form::Table(layout) => {
                let clock = &self.clock;
                layout.write(
                    self.out,
                    false,
                    &rows,
                    |_| String::new(),
                    |row, field| fields::cell(row, *field, clock),
                )?;
            }
            Form::Json | Form::JsonLines => {
                for row in &rows {
                    if matches!(self.request.form, Form::Json) {
                        self.out.write_all(if self.rows == 0 { b"\n" } else { b",\n" })?;
                    }
                    self.rows += 1;
                    serde_json::to_writer(&mut self.out, &json::of(row, self.clock.now))?;
                    if matches!(self.request.form, Form::JsonLines) {
                        self.out.write_all(b"\n")?;
                    }
                }
            }
            Form::Summary | Form::Nothing => {}
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        match &self.request.form {
            Form::Json => self.out.write_all(b"\n]\n")?,
            Form::Summary => self.summary.write(self.out)?,
            _ => {}
        }
        if let Some(path) = &self.request.svg {
            std::fs::write(path, chart::svg(&self.summary.usage()))
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        }
        self.joblog.take().map_or(Ok(()), joblog::Joblog::finish)
    }
}

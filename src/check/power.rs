#![doc = include_str!("power.md")]

use serde::{Deserialize, Deserializer, de};

use super::look::{Held, Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::{Answers, Gpu, Question, Snapshot};
use crate::host::clock;
use crate::outcome::{Action, Finding, Grade, Outcome, blame};
use crate::reading::{Code, Reading};
use crate::units::{Celsius, Seconds, Watts};

/// What a GPU of the class may draw and how warm it may be.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Power {
    /// The limit that a GPU of the class has; absent: the board's own default.
    pub limit: Option<Watts>,
    /// How far a limit may be from it; absent: not at all.
    pub tolerance: Option<Watts>,
    /// More than this no GPU of the class can draw: the sensor is wrong.
    pub draw_max: Watts,
    pub temperature_max: Celsius,
    /// At least three.
    #[serde(deserialize_with = "at_least_three")]
    pub samples: u32,
    /// Time from one sample to the next.
    pub interval: Seconds,
}

/// Fewer samples than this say nothing of a state that comes and goes.
const FEWEST_SAMPLES: u32 = 3;

fn at_least_three<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let samples = u32::deserialize(deserializer)?;
    let wrong =
        || de::Error::custom(format!("samples = {samples} is too few: a state needs at least {FEWEST_SAMPLES}"));
    if samples < FEWEST_SAMPLES { Err(wrong()) } else { Ok(samples) }
}

/// One look at what changes from moment to moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Milliwatts.
    pub draw: Reading<u32>,
    pub temperature: Reading<u32>,
    pub event_reasons: Reading<u64>,
    pub performance_state: Reading<u32>,
}

impl Sample {
    fn questions(gpu: u32) -> [Question; 4] {
        [
            Question::new("nvmlDeviceGetPowerUsage", &[gpu]),
            Question::new("nvmlDeviceGetTemperature", &[gpu, 0]),
            Question::new("nvmlDeviceGetCurrentClocksEventReasons", &[gpu]),
            Question::new("nvmlDeviceGetPerformanceState", &[gpu]),
        ]
    }

    fn from_answers(gpu: u32, answers: &Answers) -> Sample {
        Sample {
            draw: answers.reading("nvmlDeviceGetPowerUsage", &[gpu]),
            temperature: answers.reading("nvmlDeviceGetTemperature", &[gpu, 0]),
            event_reasons: answers.reading("nvmlDeviceGetCurrentClocksEventReasons", &[gpu]),
            performance_state: answers.reading("nvmlDeviceGetPerformanceState", &[gpu]),
        }
    }

    /// Draw, temperature and event reasons, if all were read.
    fn values(&self) -> Option<(u32, u32, u64)> {
        Some((*self.draw.value()?, *self.temperature.value()?, *self.event_reasons.value()?))
    }
}

impl Check for Power {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        let gpus: Vec<u32> = context.opening.gpus_by_bus_id().values().map(|gpu| gpu.index).collect();
        let rounds = if context.opening.driver.is_answering() { self.gather(&gpus, context) } else { Vec::new() };
        self.judge(context.opening, &rounds)
    }
}

impl Power {
    /// Takes samples until each GPU has as many whole ones as planned, but no more than twice
    /// as many rounds, and none after the deadline.
    fn gather(&self, gpus: &[u32], context: &mut Context<'_>) -> Vec<Answers> {
        let questions: Vec<Question> = gpus.iter().flat_map(|gpu| Sample::questions(*gpu)).collect();
        let mut rounds: Vec<Answers> = Vec::new();
        while !questions.is_empty() && (rounds.len() as u32) < self.samples.saturating_mul(2) {
            if !rounds.is_empty() && !clock::pause(self.interval.duration(), context.deadline) {
                break;
            }
            rounds.push(context.machine.ask(&questions, context.deadline));
            let enough = |gpu: &u32| whole(&samples(*gpu, &rounds)).len() >= self.samples as usize;
            if gpus.iter().all(enough) {
                break;
            }
            (context.progress)("power and temperature", rounds.len() as f64 / f64::from(self.samples));
        }
        rounds
    }

    /// Judges limits and samples of each GPU.
    pub fn judge(&self, facts: &Snapshot, rounds: &[Answers]) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let mut judgement = each_gpu(facts, |look, gpu| {
            self.judge_limits(gpu, look);
            self.judge_samples(&samples(gpu.index, rounds), look);
        });
        judgement.attempts((rounds.len() as u32).saturating_sub(self.samples) + 1);
        judgement.close("limits as the class has them, no slowdown")
    }

    fn judge_limits(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let watts = |milliwatts: &u32| f64::from(*milliwatts) / 1000.0;
        let set = look.require(&gpu.power_limit, "power limit").map(watts);
        let default = look.require(&gpu.power_default_limit, "default power limit").map(watts);
        let enforced = look.require(&gpu.power_enforced_limit, "enforced power limit").map(watts);
        let (Some(set), Some(default), Some(enforced)) = (set, default, enforced) else { return };
        if set <= 0.0 || default <= 0.0 || enforced <= 0.0 {
            let none = blame::unanswered(&look.subject(), "power limits", Code::GARBLED);
            let found = format!("{set} W set, {enforced} W enforced, default {default} W");
            return look.unread(none.compared("limits above 0 W", found)).unwrap_or(());
        }
        let wanted = self.limit.map_or(default, Watts::number);
        let floor = wanted - self.tolerance.map_or(0.0, Watts::number);
        look.measure(look.number("power-limit", set, "W").at_least(floor));
        look.measure(look.number("power-limit-enforced", enforced, "W").at_least(floor));
        if set.min(enforced) < floor {
            let advice = format!(
                "nvidia-smi -i {} -pl {wanted:.0}; if it is refused, the board, its power supply or the platform caps it; run again.",
                look.subject()
            );
            look.find(
                Finding::new(Grade::Failed, "power-limit-low", look.subject(), "Power limit low", Action::Configure)
                    .compared(format!("{wanted} W"), format!("{set} W set, {enforced} W enforced, default {default} W"))
                    .advise(&advice),
            );
        } else if (set - default).abs() > self.tolerance.map_or(0.0, Watts::number) {
            let advice = format!(
                "Somebody set this limit. nvidia-smi -i {} -pl {default:.0} brings the default back.",
                look.subject()
            );
            look.find(
                Finding::new(
                    Grade::Warned,
                    "power-limit-changed",
                    look.subject(),
                    "Power limit not the default",
                    Action::Configure,
                )
                .compared(format!("the default, {default} W"), format!("{set} W"))
                .advise(&advice),
            );
        }
    }

    fn judge_samples(&self, samples: &[Sample], look: &mut Look<'_>) {
        if let Some(fault) = stated_defect(samples, look) {
            return look.unread(fault).unwrap_or(());
        }
        let whole = whole(samples);
        // As many as were planned: fewer are not the measurement that the class asks for.
        if whole.len() < self.samples.max(FEWEST_SAMPLES) as usize {
            let unread: Finding = self.why_unread(samples, look);
            return look.unread(unread).unwrap_or(());
        }
        self.judge_draw(&whole, look);
        self.judge_heat(&whole, look);
        self.judge_slowdown(&whole, look);
    }

    fn why_unread(&self, samples: &[Sample], look: &Look<'_>) -> Finding {
        unread(samples, look).last().unwrap_or_else(|| {
            Finding::new(Grade::Undecided, "too-few-samples", look.subject(), "Too few samples", Action::Investigate)
                .compared(format!("at least {} samples", self.samples), samples.len())
                .advise("The step's time was over: give it more (timeout in the suite) and run again.")
        })
    }

    fn judge_draw(&self, samples: &[(u32, u32, u64)], look: &mut Look<'_>) {
        let draws: Vec<f64> = samples.iter().map(|(draw, _, _)| f64::from(*draw) / 1000.0).collect();
        look.measure(look.number("power-draw", median(&draws), "W").at_most(self.draw_max.number()));
        let implausible = |draw: &&f64| **draw <= 0.0 || **draw > self.draw_max.number();
        let wrong: Vec<&f64> = draws.iter().filter(implausible).collect();
        if let Some(draw) = wrong.first() {
            look.unread::<()>(
                Finding::new(
                    Grade::Undecided,
                    "power-implausible",
                    look.subject(),
                    "Power draw implausible",
                    Action::Investigate,
                )
                .compared(
                    format!("above 0 W and at most {}", self.draw_max),
                    format!("{draw} W in {} of {} samples", wrong.len(), draws.len()),
                )
                .advise("Power-cycle and run again; if it stays, the board's power sensor is broken: replace the GPU."),
            );
        }
    }

    fn judge_heat(&self, samples: &[(u32, u32, u64)], look: &mut Look<'_>) {
        let temperatures: Vec<f64> = samples.iter().map(|(_, temperature, _)| f64::from(*temperature)).collect();
        let hottest = temperatures.iter().copied().fold(0.0, f64::max);
        look.measure(look.number("temperature", median(&temperatures), "C").at_most(self.temperature_max.number()));
        let hot = temperatures.iter().filter(|temperature| **temperature > self.temperature_max.number()).count();
        if let Some(grade) = grade_of(hot, samples.len()) {
            look.find(
                Finding::new(grade, "too-hot", look.subject(), "GPU too hot", Action::Cool)
                    .compared(
                        format!("at most {}", self.temperature_max),
                        format!("{hottest} C, above it in {hot} of {} samples", samples.len()),
                    )
                    .advise("Check fans, airflow or coolant and the inlet temperature; let it cool and run again."),
            );
        }
    }

    fn judge_slowdown(&self, samples: &[(u32, u32, u64)], look: &mut Look<'_>) {
        let showing = |mask: u64| samples.iter().filter(|(_, _, reasons)| reasons & mask != 0).count();
        let brake = showing(POWER_BRAKE);
        if let Some(grade) = grade_of(brake, samples.len()) {
            look.find(
                Finding::new(grade, "power-brake", look.subject(), "Power brake", Action::Investigate)
                    .compared("no power brake", format!("one in {brake} of {} samples", samples.len()))
                    .advise("The platform throttles the GPU: look for a failed or unplugged power supply and its events (ipmitool sel list); run again."),
            );
        }
        // Older drivers set this bit alone, without the reason behind it.
        let unnamed = |(_, _, reasons): &&(u32, u32, u64)| {
            reasons & HARDWARE_SLOWDOWN != 0 && reasons & (POWER_BRAKE | HARDWARE_THERMAL) == 0
        };
        let slow = samples.iter().filter(unnamed).count();
        if let Some(grade) = grade_of(slow, samples.len()) {
            look.find(
                Finding::new(grade, "hardware-slowdown", look.subject(), "Hardware slowdown", Action::Investigate)
                    .compared("no hardware slowdown", format!("one in {slow} of {} samples", samples.len()))
                    .advise("Heat, the power brake or too fast a draw: look at cooling, power cables and supplies; run again."),
            );
        }
        let heat = showing(HARDWARE_THERMAL | SOFTWARE_THERMAL);
        if let Some(grade) = grade_of(heat, samples.len()) {
            look.find(
                Finding::new(grade, "thermal-slowdown", look.subject(), "Thermal slowdown", Action::Cool)
                    .compared("no thermal slowdown", format!("one in {heat} of {} samples", samples.len()))
                    .advise("Check fans, airflow or coolant and how the heat sink sits; let it cool and run again."),
            );
        }
    }
}

/// Bits of the clock event reasons (`nvml.h`, `nvmlClocksEventReason…`).
const HARDWARE_SLOWDOWN: u64 = 0x8;
const SOFTWARE_THERMAL: u64 = 0x20;
const HARDWARE_THERMAL: u64 = 0x40;
const POWER_BRAKE: u64 = 0x80;

/// Most samples fail, fewer warn, none is nothing.
fn grade_of(showing: usize, samples: usize) -> Option<Grade> {
    match showing {
        0 => None,
        _ if showing * 2 > samples => Some(Grade::Failed),
        _ => Some(Grade::Warned),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn samples(gpu: u32, rounds: &[Answers]) -> Vec<Sample> {
    rounds.iter().map(|answers| Sample::from_answers(gpu, answers)).collect()
}

fn whole(samples: &[Sample]) -> Vec<(u32, u32, u64)> {
    samples.iter().filter_map(Sample::values).collect()
}

/// The findings of everything in these samples that could not be read.
fn unread<'a>(samples: &'a [Sample], look: &'a Look<'_>) -> impl Iterator<Item = Finding> + 'a {
    let subject = look.subject();
    samples
        .iter()
        .flat_map(move |sample| {
            [
                blame::require(&sample.draw, &subject, "power draw").err(),
                blame::require(&sample.temperature, &subject, "temperature").err(),
                blame::require(&sample.event_reasons, &subject, "clock event reasons").err(),
            ]
        })
        .flatten()
}

/// A sample by which the driver states a defect (lost, needs a reset) counts at once.
fn stated_defect(samples: &[Sample], look: &Look<'_>) -> Option<Finding> {
    unread(samples, look).find(|finding| finding.grade == Grade::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread};
    use crate::facts::Answer;

    const GPU: &str = "0000:1b:00.0";

    fn check() -> Power {
        let text = r#"
            limit = "700 W"
            tolerance = "1 W"
            draw-max = "840 W"
            temperature-max = "85 C"
            samples = 3
            interval = "1 ms""#;
        toml::from_str(text).unwrap()
    }

    /// A round in which GPU 0 draws so many milliwatts at this temperature for these reasons.
    fn round(draw: u32, temperature: u32, reasons: u64) -> Answers {
        let values = [u64::from(draw), u64::from(temperature), reasons, 0];
        Sample::questions(0).into_iter().zip(values).map(|(question, value)| (question, Answer::value(value))).collect()
    }

    fn failing(code: Code) -> Answers {
        Sample::questions(0).into_iter().map(|question| (question, Answer::refused(code))).collect()
    }

    fn calm() -> Vec<Answers> {
        vec![round(72_000, 31, 1); 3]
    }

    #[track_caller]
    fn over(rounds: &[Answers], status: &str, findings: &[&str]) {
        let findings: Vec<_> = findings.iter().map(|code| (*code, GPU)).collect();
        assert_outcome(&check().judge(&sample::host(1), rounds), status, &findings);
    }

    #[track_caller]
    fn with_limits(set: u32, default: u32, enforced: u32, status: &str, findings: &[&str]) {
        let mut facts = sample::host(1);
        let gpu = &mut facts.gpus[0];
        (gpu.power_limit, gpu.power_default_limit, gpu.power_enforced_limit) =
            (Reading::Value(set), Reading::Value(default), Reading::Value(enforced));
        let findings: Vec<_> = findings.iter().map(|code| (*code, GPU)).collect();
        assert_outcome(&check().judge(&facts, &calm()), status, &findings);
    }

    #[test]
    fn a_calm_gpu_with_its_limit_passes() {
        over(&calm(), "passed", &[]);
    }

    #[test]
    fn a_low_limit_fails_and_another_than_the_default_warns() {
        with_limits(500_000, 700_000, 500_000, "failed", &["power-limit-low"]);
        with_limits(700_000, 700_000, 350_000, "failed", &["power-limit-low"]);
        with_limits(700_000, 600_000, 700_000, "warned", &["power-limit-changed"]);
        for (set, default, enforced) in [(0, 700_000, 700_000), (700_000, 0, 700_000), (700_000, 700_000, 0)] {
            with_limits(set, default, enforced, "undecided", &["garbled"]);
        }
    }

    #[test]
    fn most_samples_fail_and_fewer_warn() {
        let mixed = |bad: Answers, times: usize| {
            let mut rounds = calm();
            rounds[..times].fill(bad);
            rounds
        };
        for (bad, code) in [
            (round(72_000, 31, 0x88), "power-brake"),
            (round(72_000, 31, 0x48), "thermal-slowdown"),
            (round(72_000, 31, 0x20), "thermal-slowdown"),
            (round(72_000, 31, 0x8), "hardware-slowdown"),
            (round(72_000, 90, 1), "too-hot"),
        ] {
            over(&mixed(bad.clone(), 2), "failed", &[code]);
            over(&mixed(bad, 1), "warned", &[code]);
        }
    }

    #[test]
    fn a_software_power_cap_is_normal() {
        over(&vec![round(699_000, 60, 0x4); 3], "passed", &[]);
    }

    #[test]
    fn a_draw_that_cannot_be_is_a_sensor_that_cannot_be_believed() {
        over(&vec![round(0, 31, 1); 3], "undecided", &["power-implausible"]);
        over(&vec![round(900_000, 31, 1); 3], "undecided", &["power-implausible"]);
    }

    #[test]
    fn a_passing_hitch_is_forgiven_and_counted_but_a_lost_gpu_is_not() {
        let mut rounds = calm();
        rounds.insert(1, failing(Code::UNKNOWN));
        over(&rounds, "passed", &[]);
        assert_eq!(check().judge(&sample::host(1), &rounds).attempts, 2);
        rounds[1] = failing(Code::GPU_IS_LOST);
        over(&rounds, "failed", &["gpu-lost"]);
    }

    #[test]
    fn fewer_than_three_whole_samples_prove_nothing() {
        over(&calm()[..2], "undecided", &["too-few-samples"]);
        over(&[], "undecided", &["too-few-samples"]);
        let mut mostly_silent = vec![failing(Code::UNKNOWN); 9];
        mostly_silent.extend(calm());
        let asked_for_more = Power { samples: 10, ..check() };
        assert_outcome(&asked_for_more.judge(&sample::host(1), &mostly_silent), "undecided", &[("unreadable", GPU)]);
        over(&vec![failing(Code::NOT_RECORDED); 6], "undecided", &["not-recorded"]);
        over(&vec![failing(Code::HUNG); 6], "undecided", &["driver-hung"]);
        let text = "draw-max = \"1 W\"\ntemperature-max = \"1 C\"\nsamples = 2\ninterval = \"1 ms\"";
        assert!(toml::from_str::<Power>(text).unwrap_err().to_string().contains("too few"));
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($field:ident) => {
                assert_never_passes_unread(stringify!($field), unread(), |state| {
                    let mut facts = sample::host(1);
                    facts.gpus[0].$field = state;
                    check().judge(&facts, &calm())
                })
            };
        }
        never!(power_limit);
        never!(power_default_limit);
        never!(power_enforced_limit);
        assert_outcome(&check().judge(&sample::host(0), &calm()), "undecided", &[]);
    }
}

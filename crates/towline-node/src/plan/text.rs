//! A plan as people read it.

use std::fmt::Write as _;

use super::{Plan, Vm};
use crate::picture::size;
use crate::root::list;
use crate::step::{Action, Class};

impl Plan {
    /// What would change, line by line.
    #[must_use]
    pub fn difference(&self) -> String {
        let changes = self
            .steps
            .iter()
            .flat_map(|step| &step.actions)
            .filter_map(Action::difference);
        changes.fold(String::new(), |text, line| text + &line + "\n")
    }

    /// The whole plan: machines, obstacles, steps, notes.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for vm in &self.vms {
            describe(&mut text, vm);
        }
        for obstacle in &self.obstacles {
            let _ = writeln!(
                text,
                "cannot: {}\n  would help: {}",
                obstacle.what, obstacle.remedy
            );
        }
        for (step, number) in self.steps.iter().zip(1..) {
            let class = match step.class {
                Class::Runtime => "at once",
                Class::NeedsReboot => "from the next start on",
            };
            let _ = writeln!(
                text,
                "{number}. {} ({class})\n   why: {}",
                step.title, step.reason
            );
            if step.actions.is_empty() {
                let _ = writeln!(text, "   done already; the host has to be restarted");
            }
            for action in &step.actions {
                if !matches!(action, Action::Run { forward: None, .. }) {
                    let _ = writeln!(
                        text,
                        "   do:    {}",
                        action.forward().replace('\n', "\n   ")
                    );
                    let _ = writeln!(text, "   check: {}", action.check());
                }
                match action {
                    Action::Run { forward: None, .. } => {
                        let _ =
                            writeln!(text, "   undo, after those below:  {}", action.backward());
                    }
                    Action::Run { backward: None, .. } => {}
                    _ => {
                        let _ = writeln!(
                            text,
                            "   undo:  {}",
                            action.backward().replace('\n', "\n   ")
                        );
                    }
                }
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        if !self.obstacles.is_empty() {
            text.push_str("This host cannot do it as it is.\n");
        } else if self.steps.is_empty() {
            text.push_str("Nothing has to be done.\n");
        } else if self.needs_reboot() {
            text.push_str("The host has to be restarted in between; apply does not do that.\n");
        }
        text
    }
}

fn describe(text: &mut String, vm: &Vm) {
    let near = vm
        .locality
        .map(|locality| format!(", GPU and network share a {locality}"))
        .unwrap_or_default();
    let _ = writeln!(text, "{}{near}", vm.name);
    for cell in &vm.cells {
        let mut cpus = cell.cpus.clone();
        cpus.sort_unstable();
        let _ = writeln!(
            text,
            "  node {}: processors {}, {} in pages of {}, hypervisor on {}",
            cell.node,
            list(&cpus),
            size(cell.memory_kib << 10),
            size(vm.page_kib << 10),
            match cell.host_cpus.is_empty() {
                true => "any".to_owned(),
                false => {
                    let mut cpus = cell.host_cpus.clone();
                    cpus.sort_unstable();
                    list(&cpus)
                }
            }
        );
    }
    for gpu in &vm.gpus {
        let _ = writeln!(text, "  GPU {gpu}");
    }
    for companion in &vm.companions {
        let _ = writeln!(text, "  with it {companion}");
    }
    for function in &vm.vfs {
        let who = match (&function.mac, &function.guids) {
            (Some(mac), _) => format!("mac {mac}"),
            (None, Some((node, port))) => format!("node guid {node}, port guid {port}"),
            (None, None) => String::new(),
        };
        let _ = writeln!(
            text,
            "  function {} of {} at {}, {who}",
            function.index, function.physical, function.address
        );
    }
    for function in &vm.drives {
        let _ = writeln!(
            text,
            "  function {} of drive {} at {}",
            function.index, function.physical, function.address
        );
    }
}

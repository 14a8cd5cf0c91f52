//! Commands of OpenCL queues, for backends that keep queues and events themselves. What all commands have in common is generated: the
//! queue and the wait list before, the event after. A backend's method of a command's name has what is left:
//!
//! ```text
//! unsafe fn clEnqueueCopyBuffer(&self, queue: &.., src_buffer: cl_mem, .., size: usize) -> Result<Work, cl_int>
//! ```

use std::fmt::Write;

use super::pointee;
use crate::model::{Call, Extent, Param, Shape, Type};

/// A call that enqueues a command and answers a status, by the parts of its signature.
pub(super) struct Command<'a> {
    call: &'a Call,
    queue: &'a str,
    /// Length and first element of the wait list.
    waits: (&'a str, &'a str),
    event: &'a str,
    /// Whether the call is to wait.
    blocking: Option<&'a str>,
    /// What is not the same for all commands.
    own: Vec<&'a Param>,
}

impl<'a> Command<'a> {
    /// The call as a command, if it is one that says more than what it waits for.
    pub(super) fn of(call: &'a Call) -> Option<Self> {
        let [queue, own @ .., count, list, event] = call.params.as_slice() else {
            return None;
        };
        let is_event = |param| *pointee(param) == Type::Handle("cl_event".into());
        let has_frame = call.name.starts_with("clEnqueue")
            && queue.ty == Type::Handle("cl_command_queue".into())
            && is_event(list)
            && is_event(event);
        if !has_frame || own.is_empty() {
            return None;
        }
        let (blocking, own) = own
            .iter()
            .partition::<Vec<_>, _>(|param| param.name.starts_with("blocking_"));
        Some(Self {
            call,
            queue: &queue.name,
            waits: (&count.name, &list.name),
            event: &event.name,
            blocking: blocking.first().map(|param| param.name.as_str()),
            own,
        })
    }

    /// `clEnqueueFillBuffer` gives `CL_COMMAND_FILL_BUFFER`.
    fn kind(&self) -> String {
        let name = self.call.name.trim_start_matches("clEnqueue");
        let mut kind = String::from("CL_COMMAND");
        let mut was_lower = true;
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && was_lower {
                kind.push('_');
            }
            was_lower = letter.is_ascii_lowercase();
            kind.push(letter.to_ascii_uppercase());
        }
        kind
    }

    /// The expression that enqueues the command at `backend`: a status.
    pub(super) fn enqueue(&self, backend: &str, indent: &str) -> String {
        let given: String = self
            .own
            .iter()
            .map(|own| format!(", {}", own.name))
            .collect();
        let lines = [
            "status((|| {".to_owned(),
            "    // SAFETY: the caller's contract.".to_owned(),
            format!(
                "    let target = unsafe {{ {backend}.target({}, {}, {}) }}?;",
                self.queue, self.waits.0, self.waits.1
            ),
            "    // SAFETY: the caller's contract, passed on.".to_owned(),
            format!(
                "    let work = unsafe {{ {backend}.{}(&target.0{given}) }}?;",
                self.call.name
            ),
            format!(
                "    let how = ({}, Order::Free, {});",
                self.kind(),
                self.blocking.unwrap_or("CL_FALSE")
            ),
            "    // SAFETY: the caller's contract.".to_owned(),
            format!(
                "    unsafe {{ {backend}.submit(target, how, {}, work) }}",
                self.event
            ),
            "})())".to_owned(),
        ];
        lines.map(|line| format!("{indent}{line}\n")).concat()
    }

    /// The method of the adapter for serial vendors that gives the command to the vendor as it is, once its turn has come.
    pub(super) fn serial_method(&self) -> String {
        let mut out = String::new();
        let own = self
            .own
            .iter()
            .map(|own| format!(", {}: {}", own.name, own.ty.rust()));
        let _ = writeln!(
            out,
            "    unsafe fn {}(&self, at: &CommandQueue{}) -> Result<Work, cl_int> {{",
            self.call.name,
            own.collect::<String>()
        );
        for param in &self.own {
            out.push_str(&self.kept(param));
        }
        let passed = self.call.params.iter().map(|param| self.passed(param));
        let _ = write!(
            out,
            "        // SAFETY: the closure holds the objects; what is the application's is good until the command has ended.\n        Ok(self.work(at, move |native, queue, done| unsafe {{\n            native.{}({})\n        }}))\n    }}\n",
            self.call.name,
            passed.collect::<Vec<_>>().join(", ")
        );
        out
    }

    /// The statement that keeps a parameter until the command runs. Without one a pointer does not compile: it is not `Send`.
    fn kept(&self, param: &Param) -> String {
        let name = &param.name;
        let three = crate::model::Expr {
            param: None,
            factor: 3,
            less: 0,
        };
        match (&param.ty, &param.shape) {
            (Type::Handle(_), _) => {
                format!(
                    "        let {name} = self.memory(at, {name})?;\n{}",
                    self.range(name)
                )
            }
            (
                _,
                Shape::Input {
                    extent: Extent::Len(len),
                    ..
                },
            ) if *len == three => format!(
                "        // SAFETY: the caller's contract.\n        let {name} = unsafe {{ triple({name}) }}?;\n"
            ),
            (
                _,
                Shape::Input {
                    extent: Extent::Bytes(len),
                    ..
                },
            ) => format!(
                "        // SAFETY: the caller's contract.\n        let {name} = unsafe {{ list({name}.cast::<u8>(), {}, CL_INVALID_VALUE) }}?;\n",
                super::length(len, str::to_owned)
            ),
            (_, Shape::Local) => format!("        let {name} = Host::new({name})?;\n"),
            _ => String::new(),
        }
    }

    /// The check of a range of a buffer, where the call says one: `src_buffer` goes with `src_offset`, and with `size`.
    fn range(&self, buffer: &str) -> String {
        let has = |name: &str| self.own.iter().any(|param| param.name == name);
        let offset = buffer.replace("buffer", "offset");
        if offset == buffer || !has(&offset) || !has("size") {
            return String::new();
        }
        format!("        {buffer}.range({offset}, size)?;\n")
    }

    /// What the vendor's function is given for a parameter.
    fn passed(&self, param: &Param) -> String {
        let name = &param.name;
        match (&param.ty, &param.shape) {
            _ if name == self.queue => "queue".into(),
            _ if name == self.waits.0 => "0".into(),
            _ if name == self.waits.1 => "std::ptr::null()".into(),
            _ if name == self.event => "done".into(),
            _ if Some(name.as_str()) == self.blocking => "CL_FALSE".into(),
            (Type::Handle(_), _) => format!("{name}.mem()"),
            (
                _,
                Shape::Input {
                    extent: Extent::Bytes(_),
                    ..
                },
            ) => {
                format!("{name}.as_ptr().cast()")
            }
            (_, Shape::Input { .. }) => format!("{name}.as_ptr()"),
            (_, Shape::Local) => format!("{name}.at()"),
            _ => name.clone(),
        }
    }
}

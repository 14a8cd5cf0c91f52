//! The coverage page of an API: what is answered, by whom, and what is refused.

use std::fmt::Write;

use crate::model::{Api, Call, Mode};

fn answer(call: &Call) -> &'static str {
    match (call.unsupported, call.mode) {
        (true, _) if call.denied => "denied",
        (true, _) => "refused",
        _ if call.planned => "not yet",
        (_, Mode::Local) => "client",
        (_, Mode::Async) => "posted",
        (_, Mode::Sync) => "round trip",
    }
}

/// Emits the page.
pub fn emit(api: &Api, title: &str) -> String {
    let calls: Vec<&Call> = api.calls.iter().filter(|call| call.exported()).collect();
    let refused = calls.iter().filter(|call| call.unsupported).count();
    let planned = calls.iter().filter(|call| call.planned).count();
    let not_yet = if planned == 0 {
        String::new()
    } else {
        format!(
            "\n**{planned} of them are declared, not yet served**: their messages and the vendor's side exist, the halves of client and\n\
             worker do not. They answer \"not supported\".\n"
        )
    };
    let denied = if calls.iter().any(|call| call.denied) {
        " *denied*: would change a\ndevice, which no client may."
    } else {
        ""
    };
    let mut out = format!(
        "# {title} coverage\n\nGenerated from `api/{}/` by `cargo xtask api coverage`; `make test` checks that it is fresh.\n\n\
         {} functions: {} supported, {refused} refused with the specified error.\n{not_yet}\n\
         *client*: answered or composed in the application's process. *posted*: one way, no wait; errors come with the event or the next\n\
         wait. *round trip*: waits for the server, results that cannot change are cached. *refused*: declared, not advertised.{denied}\n",
        api.name,
        calls.len(),
        calls.len() - refused - planned
    );
    let mut group = "";
    for call in calls {
        if call.group != group {
            group = &call.group;
            let _ = write!(
                out,
                "\n## {group}\n\n| function | id | since | answered | what it does |\n| --- | --- | --- | --- | --- |\n"
            );
        }
        let since = match (&call.extension, &call.since) {
            (Some(extension), _) => extension.clone(),
            (None, Some(since)) => since.clone(),
            (None, None) => api.dialect().first_version.into(),
        };
        let _ = writeln!(
            out,
            "| `{}` | {:#06x} | {since} | {} | {} |",
            call.name,
            call.id,
            answer(call),
            call.doc.replace('|', "\\|")
        );
    }
    out
}

//! What recent launches led to, so that the next one of the same function on the same stream need not look anything up: programs launch
//! more often than they do anything else, and few functions at a time.

use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::CU_STREAM_LEGACY;

use super::context::Context;
use super::shared::Layout;
use super::streams::Target;
use crate::link::Raw;

/// Functions that are remembered; a power of two.
const KEPT: usize = 16;

/// A launch's function and stream, looked up.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) function: Raw,
    /// Where the function's parameters lie; `None` where that is not known.
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) target: Target,
}

struct Known {
    function: u64,
    stream: u64,
    found: Found,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Recent {
    /// The table's changes when all of this was looked up.
    changes: u64,
    known: [Option<Known>; KEPT],
}

/// Where a function is remembered: numbers count up.
fn place(function: wire::FunctionHandle) -> usize {
    function.0 as usize % KEPT
}

impl Recent {
    /// What the function on the stream was found to be, if nothing has changed since. A default stream is that of the context that acts.
    #[inline]
    pub(crate) fn find(
        &self,
        function: wire::FunctionHandle,
        stream: wire::StreamHandle,
        acting: Option<&Arc<Context>>,
        changes: u64,
    ) -> Option<&Found> {
        let known = self.known[place(function)].as_ref()?;
        let same = self.changes == changes
            && known.function == function.0
            && known.stream == stream.0
            && (stream.0 > CU_STREAM_LEGACY
                || acting.is_some_and(|context| context.id == known.found.target.key));
        same.then_some(&known.found)
    }

    /// Remembers what was found when the table had changed so often.
    pub(crate) fn keep(
        &mut self,
        function: wire::FunctionHandle,
        stream: wire::StreamHandle,
        found: Found,
        changes: u64,
    ) {
        if self.changes != changes {
            self.clear();
            self.changes = changes;
        }
        let known = Known {
            function: function.0,
            stream: stream.0,
            found,
        };
        self.known[place(function)] = Some(known);
    }

    /// Lets go of contexts and streams.
    pub(crate) fn clear(&mut self) {
        self.known = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    fn context(id: u64) -> Arc<Context> {
        Arc::new(Context::new(
            id,
            null_mut(),
            (0, 0),
            true,
            0,
            &Arc::default(),
        ))
    }

    fn found(context: &Arc<Context>, stream: u64) -> Found {
        Found {
            function: Raw(null_mut()),
            layout: None,
            target: Target::default_of(Arc::clone(context), stream),
        }
    }

    const FUNCTION: wire::FunctionHandle = wire::FunctionHandle(70);
    const STREAM: wire::StreamHandle = wire::StreamHandle(90);

    #[test]
    fn what_was_found_holds_until_something_changes() {
        let (context, mut recent) = (context(1), Recent::default());
        let acting = Some(&context);
        recent.keep(FUNCTION, STREAM, found(&context, STREAM.0), 5);
        assert!(recent.find(FUNCTION, STREAM, acting, 5).is_some());
        // The stream is the stream, whatever context acts.
        assert!(recent.find(FUNCTION, STREAM, None, 5).is_some());
        assert!(recent.find(FUNCTION, STREAM, acting, 6).is_none());
        let (other, elsewhere) = (wire::FunctionHandle(71), wire::StreamHandle(91));
        assert!(recent.find(other, STREAM, acting, 5).is_none());
        assert!(recent.find(FUNCTION, elsewhere, acting, 5).is_none());
        let twin = wire::FunctionHandle(FUNCTION.0 + KEPT as u64);
        assert!(recent.find(twin, STREAM, acting, 5).is_none());
        recent.keep(other, STREAM, found(&context, STREAM.0), 6);
        assert!(recent.find(FUNCTION, STREAM, acting, 5).is_none());
        recent.clear();
        assert_eq!(Arc::strong_count(&context), 1);
    }

    #[test]
    fn a_default_stream_is_that_of_the_context_that_acts() {
        let [one, two] = [1, 2].map(context);
        let (default, mut recent) = (wire::StreamHandle(0), Recent::default());
        recent.keep(FUNCTION, default, found(&one, 0), 0);
        assert!(recent.find(FUNCTION, default, Some(&one), 0).is_some());
        assert!(recent.find(FUNCTION, default, Some(&two), 0).is_none());
        assert!(recent.find(FUNCTION, default, None, 0).is_none());
    }
}

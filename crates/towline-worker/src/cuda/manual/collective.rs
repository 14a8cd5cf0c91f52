//! Communicators and collectives.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::{End, result};
use towline_wire::cuda::collective::{decode_members, decode_operations};
use towline_wire::error::{CloseCode, ProtocolError};

use crate::cuda::collective::Request as Wanted;
use crate::cuda::session::Session;

/// NCCL's result of an outcome.
fn verdict<T>(outcome: &Result<T, i32>) -> Option<i32> {
    Some(outcome.as_ref().err().copied().unwrap_or(result::SUCCESS))
}

impl Session {
    pub(crate) fn CollectiveVersion(
        &mut self,
        number: u64,
        _request: wire::CollectiveVersion,
    ) -> Result<(), ProtocolError> {
        self.wait(move |shared| {
            let version = shared.collective_version();
            let status = version.err().unwrap_or(CUDA_SUCCESS);
            let version = version.ok();
            shared.reply(number, status, &wire::CollectiveVersionReply { version });
        });
        Ok(())
    }

    pub(crate) fn CollectiveId(
        &mut self,
        number: u64,
        _request: wire::CollectiveId,
    ) -> Result<(), ProtocolError> {
        self.wait(move |shared| {
            let id = shared.collective_id();
            let result = verdict(&id);
            let name = id.ok();
            let reply = wire::CollectiveIdReply {
                name: name.as_ref().map(<[u8; _]>::as_slice),
                result,
            };
            shared.reply(number, CUDA_SUCCESS, &reply);
        });
        Ok(())
    }

    pub(crate) fn CollectiveMake(
        &mut self,
        number: u64,
        request: wire::CollectiveMake<'_>,
    ) -> Result<(), ProtocolError> {
        let words: Vec<u64> = request.words.iter().collect();
        let members = decode_members(&words).map_err(malformed)?;
        if request.room as usize != members.len() * 2 {
            let detail = format!("{} facts of {} communicators", request.room, members.len());
            return Err(ProtocolError::new(CloseCode::Malformed, detail));
        }
        let room = members.len() * 2;
        self.make_communicators(members, move |shared, outcome| {
            let result = verdict(&outcome);
            let facts = outcome.unwrap_or_else(|_| vec![-1; room]);
            let reply = wire::CollectiveMakeReply {
                facts: Some(wire::List::Values(&facts)),
                result,
            };
            shared.reply(number, CUDA_SUCCESS, &reply);
        })
    }

    pub(crate) fn CollectiveRun(
        &mut self,
        number: u64,
        request: wire::CollectiveRun<'_>,
    ) -> Result<(), ProtocolError> {
        let call = <wire::CollectiveRun<'_> as Request<'_>>::ID;
        let words: Vec<u64> = request.words.iter().collect();
        let operations = decode_operations(&words).map_err(malformed)?;
        self.run_collectives(number, call, operations)
    }

    pub(crate) fn CollectiveState(
        &mut self,
        number: u64,
        request: wire::CollectiveState,
    ) -> Result<(), ProtocolError> {
        let communicator = self.shared.collectives.find(request.communicator);
        self.wait(move |shared| {
            let state = communicator.map(|communicator| shared.collective_state(&communicator));
            let result = Some(state.unwrap_or(result::INVALID_ARGUMENT));
            shared.reply(number, CUDA_SUCCESS, &wire::CollectiveStateReply { result });
        });
        Ok(())
    }

    pub(crate) fn CollectiveEnd(
        &mut self,
        number: u64,
        request: wire::CollectiveEnd,
    ) -> Result<(), ProtocolError> {
        let how = match request.how {
            0 => End::Finalize,
            1 => End::Destroy,
            2 => End::Abort,
            3 => End::Suspend,
            4 => End::Resume,
            5 => End::Revoke,
            other => {
                let detail = format!("a communicator ends in no way {other}");
                return Err(ProtocolError::new(CloseCode::Malformed, detail));
            }
        };
        let wanted = Wanted::End(how);
        self.for_communicator(request.communicator, wanted, move |shared, outcome| {
            let result = verdict(&outcome);
            shared.reply(number, CUDA_SUCCESS, &wire::CollectiveEndReply { result });
        });
        Ok(())
    }

    pub(crate) fn CollectiveRegister(
        &mut self,
        number: u64,
        request: wire::CollectiveRegister,
    ) -> Result<(), ProtocolError> {
        let window = (request.flags >= 0).then_some(request.flags);
        let wanted = Wanted::Register(request.address, request.size, window);
        self.for_communicator(request.communicator, wanted, move |shared, outcome| {
            let reply = wire::CollectiveRegisterReply {
                result: verdict(&outcome),
                known: Some(outcome.unwrap_or(0)),
            };
            shared.reply(number, CUDA_SUCCESS, &reply);
        });
        Ok(())
    }

    pub(crate) fn CollectiveDeregister(
        &mut self,
        number: u64,
        request: wire::CollectiveDeregister,
    ) -> Result<(), ProtocolError> {
        let wanted = Wanted::Deregister(request.known, request.window != 0);
        self.for_communicator(request.communicator, wanted, move |shared, outcome| {
            let result = verdict(&outcome);
            shared.reply(
                number,
                CUDA_SUCCESS,
                &wire::CollectiveDeregisterReply { result },
            );
        });
        Ok(())
    }

    pub(crate) fn CollectiveText(
        &mut self,
        number: u64,
        request: wire::CollectiveText,
    ) -> Result<(), ProtocolError> {
        let room = usize::try_from(request.room)
            .unwrap_or(usize::MAX)
            .min(TEXT_LIMIT);
        self.wait(move |shared| {
            let mut text = shared.collective_text().into_bytes();
            text.resize(room, 0);
            let text = Some(text.as_slice());
            shared.reply(number, CUDA_SUCCESS, &wire::CollectiveTextReply { text });
        });
        Ok(())
    }
}

/// Most bytes of such a text.
const TEXT_LIMIT: usize = 4096;

fn malformed(error: towline_wire::error::DecodeError) -> ProtocolError {
    ProtocolError::new(CloseCode::Malformed, error.to_string())
}

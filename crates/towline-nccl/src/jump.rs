//! The jump of which libraries are made that are all jumps into our driver library.

/// The instruction that goes on at a function of another library.
#[cfg(target_arch = "x86_64")]
macro_rules! instruction {
    ($target:literal) => {
        concat!("jmp qword ptr [rip + ", $target, "@GOTPCREL]")
    };
}

/// The instruction that goes on at a function of another library.
#[cfg(target_arch = "aarch64")]
macro_rules! instruction {
    ($target:literal) => {
        concat!("b ", $target)
    };
}

macro_rules! jump {
    ($symbol:ident, $target:literal) => {
        /// Goes on in the driver library.
        ///
        /// # Safety
        /// The contract of the C function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            core::arch::naked_asm!(instruction!($target))
        }
    };
}

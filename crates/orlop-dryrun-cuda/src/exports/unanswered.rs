//! Functions that the libraries of a program import and that this library does not have.

use crate::abi::Text;
use crate::call::enter;
use crate::caller;
use std::ffi::{CStr, c_char};

/// What a function of this name returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Success: what it computes would be on the device.
    Success,
    /// A text: functions that name an error.
    Text,
    /// An error, silently: the caller has another way.
    Absent(i64),
    /// An error, which is named once.
    Refused(i64),
}

const TEXT: &CStr = c"not in a dry run";

/// An error of any of the libraries: `cusolverStatus_t` and `cusparseStatus_t` have lower numbers.
const NOT_SUPPORTED: i64 = 801;

/// Ends of the names of functions that return text.
const TEXT_ENDS: [&str; 6] =
    ["ErrorString", "ErrorName", "StatusString", "StatusName", "LastError", "GetString"];

/// Prefixes of names, with the answer. The first that fits counts.
const BY_PREFIX: [(&str, Answer); 20] = [
    ("cublas", Answer::Success),
    ("cudnnSet", Answer::Success),
    ("cudnnDestroy", Answer::Success),
    ("cudnnBatchNormalization", Answer::Success),
    ("cudnnSpatialTf", Answer::Success),
    ("cudnn", Answer::Refused(3000)),
    // CUPTI is not initialized; NVSHMEM neither.
    ("cupti", Answer::Absent(15)),
    ("nvshmem", Answer::Absent(0)),
    ("cusparseLt", Answer::Refused(10)),
    ("cusparseSpGEMM_copy", Answer::Success),
    ("cusparseSpGEMM_destroyDescr", Answer::Success),
    ("cusparseSpGEMM", Answer::Refused(10)),
    ("cusparseCreateBsr", Answer::Refused(10)),
    ("cusparse", Answer::Success),
    ("cusolver", Answer::Success),
    ("cufft", Answer::Refused(16)),
    ("curand", Answer::Refused(203)),
    ("nccl", Answer::Refused(3)),
    ("nvrtc", Answer::Refused(11)),
    ("cuFile", Answer::Refused(5_011)),
];

fn answer_to(name: &str) -> Answer {
    // A size that is not written would be noise.
    if name.contains("_bufferSize") {
        return Answer::Refused(NOT_SUPPORTED);
    }
    if TEXT_ENDS.iter().any(|end| name.ends_with(end)) {
        return Answer::Text;
    }
    let found = BY_PREFIX.iter().find(|(prefix, _)| name.starts_with(prefix));
    // The runtime and the driver.
    found.map_or(Answer::Refused(801), |(_, answer)| *answer)
}

/// Answers for the function `name`, which returns to `caller`. The stand-ins of `orlop-dryrun` call it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlop_dry_run_unanswered(name: Text, caller: usize) -> i64 {
    let name = name.get();
    match answer_to(&name) {
        Answer::Success => 0,
        Answer::Text => i64::try_from(TEXT.as_ptr().expose_provenance()).unwrap_or(0),
        Answer::Absent(code) => code,
        Answer::Refused(code) => {
            let (library, line) = (library_of(caller), caller::line());
            let _ = enter(|machine| {
                let entry = machine.counters.refused.entry(name.clone()).or_default();
                if entry.1 == 0 {
                    eprintln!("orlop dry-run: {name} is not in a dry run ({library} called it, at {line})");
                }
                *entry = (format!("{library}, at {line}"), entry.1 + 1);
                Ok(())
            });
            code
        }
    }
}

/// Returns the file name of the library that has an address.
fn library_of(address: usize) -> String {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the call reads no memory at the address, and writes the structure.
    let done = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut found) };
    if done == 0 {
        return "an unknown library".to_owned();
    }
    let path = text_of(found.dli_fname);
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn text_of(text: *const c_char) -> String {
    Text::from_address(text.expose_provenance()).get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_the_name() {
        assert_eq!(answer_to("cublasSgemm_v2"), Answer::Success);
        assert_eq!(answer_to("ncclGetErrorString"), Answer::Text);
        assert_eq!(answer_to("cudnnSetStream"), Answer::Success);
        assert_eq!(answer_to("cudnnCTCLoss"), Answer::Refused(3000));
        assert_eq!(answer_to("cudaGraphAddNode"), Answer::Refused(801));
        assert_eq!(answer_to("cusolverDnSgetrf"), Answer::Success);
        assert_eq!(answer_to("cusolverDnSgesvdr_bufferSize"), Answer::Refused(801));
        assert_eq!(answer_to("cusparseSpGEMMreuse_compute"), Answer::Refused(10));
    }
}

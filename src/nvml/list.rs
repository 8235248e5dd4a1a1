//! Lists: ask for the count, then for the elements, and again where it grew in between.

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_t, nvmlReturn_t};
use serde_json::{Value, json};

use super::call::{Given, check};
use super::driver::Driver;
use super::shape::symbol;
use crate::reading::Code;

/// Room for what comes up between the two calls.
const HEADROOM: u32 = 16;
/// A count beyond this is no list of processes or pages, but garbage.
const MOST: u32 = 65_536;
/// How often a list may grow under our hands before it is given up.
const ATTEMPTS: u32 = 5;
/// CPU and NUMA masks: 1024 words of 64 bits, far more than Linux can number.
const MOST_WORDS: u32 = 1024;

/// Addresses of retired pages, of one cause.
pub(super) fn retired_pages(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetRetiredPages_v2);
    let device = driver.device(arguments[0])?;
    let pages = grown(|count, room: &mut [u64]| {
        let mut times = vec![0_u64; room.len()];
        let (addresses, timestamps) = if room.is_empty() {
            (std::ptr::null_mut(), std::ptr::null_mut())
        } else {
            (room.as_mut_ptr(), times.as_mut_ptr())
        };
        // SAFETY: see the head of `shape.rs`; both arrays have `count` elements, or are null with 0.
        unsafe { function(device, arguments[1], count, addresses, timestamps) }
    })?;
    Ok(pages.into())
}

/// Processes that compute.
pub(super) fn compute_processes(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetComputeRunningProcesses_v3);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the array has `count` elements, or is null with 0.
    grown(|count, room| unsafe { function(device, count, pointer(room)) }).map(processes)
}

/// Processes that draw.
pub(super) fn graphics_processes(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetGraphicsRunningProcesses_v3);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the array has `count` elements, or is null with 0.
    grown(|count, room| unsafe { function(device, count, pointer(room)) }).map(processes)
}

/// CPUs that are near the GPU, as words of 64 bits.
pub(super) fn cpu_affinity(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetCpuAffinity);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the mask has as many words as the count says.
    words(arguments[1], |count, mask| unsafe { function(device, count, mask) })
}

/// NUMA nodes that are near the GPU, as words of 64 bits.
pub(super) fn memory_affinity(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetMemoryAffinity);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the mask has as many words as the count says.
    words(arguments[1], |count, mask| unsafe { function(device, count, mask, arguments[2]) })
}

/// The elements, as many as the last call said that there are.
fn grown<T: Clone + Default>(mut call: impl FnMut(&mut u32, &mut [T]) -> nvmlReturn_t) -> Result<Vec<T>, Code> {
    let mut room = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut count = u32::try_from(room.len()).unwrap_or(MOST);
        match check(call(&mut count, &mut room)) {
            // Asked for the count alone, a driver says success or that the room is too small.
            Ok(()) if count as usize <= room.len() => {
                room.truncate(count as usize);
                return Ok(room);
            }
            Ok(()) | Err(Code::INSUFFICIENT_SIZE) if count <= MOST => {
                room = vec![T::default(); (count + HEADROOM) as usize];
            }
            Ok(()) | Err(Code::INSUFFICIENT_SIZE) => return Err(Code::GARBLED),
            Err(code) => return Err(code),
        }
    }
    Err(Code::INSUFFICIENT_SIZE)
}

/// A process list's element that `Default` can make.
#[derive(Clone)]
#[repr(transparent)]
struct Process(nvmlProcessInfo_t);

impl Default for Process {
    fn default() -> Self {
        Process(nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 })
    }
}

/// The array for NVML; `Process` is transparent over its element.
fn pointer(room: &mut [Process]) -> *mut nvmlProcessInfo_t {
    if room.is_empty() { std::ptr::null_mut() } else { room.as_mut_ptr().cast() }
}

fn processes(list: Vec<Process>) -> Value {
    let process = |Process(process): &Process| {
        json!({
            "pid": process.pid,
            "usedGpuMemory": process.usedGpuMemory,
            "gpuInstanceId": process.gpuInstanceId,
            "computeInstanceId": process.computeInstanceId,
        })
    };
    list.iter().map(process).collect()
}

fn words(count: u32, call: impl FnOnce(u32, *mut std::ffi::c_ulong) -> nvmlReturn_t) -> Given {
    if count == 0 || count > MOST_WORDS {
        return Err(Code::INVALID_ARGUMENT);
    }
    let mut mask: Vec<std::ffi::c_ulong> = vec![0; count as usize];
    check(call(count, mask.as_mut_ptr()))?;
    Ok(mask.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver whose list has these lengths, one a call.
    fn list_of(lengths: &[u32]) -> Result<Vec<u64>, Code> {
        let mut lengths = lengths.iter().copied().cycle();
        grown(|count, room: &mut [u64]| {
            let length = lengths.next().unwrap();
            *count = length;
            if length as usize > room.len() {
                return 7;
            }
            room[..length as usize].fill(9);
            0
        })
    }

    #[test]
    fn a_list_that_shrank_between_the_calls_is_cut_to_what_was_written() {
        assert_eq!(list_of(&[3, 1]), Ok(vec![9]));
        assert_eq!(list_of(&[0]), Ok(vec![]));
    }

    #[test]
    fn a_list_that_grew_is_asked_again_but_not_for_ever() {
        assert_eq!(list_of(&[1, 40, 40]).map(|list| list.len()), Ok(40));
        assert_eq!(list_of(&[100, 300, 900, 2700, 8100, 24_300]), Err(Code::INSUFFICIENT_SIZE));
        assert_eq!(list_of(&[u32::MAX]), Err(Code::GARBLED));
    }
}

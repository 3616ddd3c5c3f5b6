//! [`Injection`]: the folder of stand-ins for one installed PyTorch, and the environment that injects it.

use crate::elf::{LibraryFile, StandIn};
use crate::error::{DryRunError, Result};
use crate::settings::{DryRunSettings, OUTPUT};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The library with the functions, and its name for the loader.
pub const LIBRARY: &str = "liborlop_dryrun_cuda.so";

/// The function of [`LIBRARY`] that answers for those that it does not have.
const ANSWER: &str = "orlop_dry_run_unanswered";

/// The stand-in that defines the functions that [`LIBRARY`] does not have.
const OTHERS: &str = "liborlop_dryrun_others.so";

/// The folder of [`SITE`]. By this name, reports take frames in it for Python's own.
const SITE_FOLDER: &str = "lib/python3";

/// Modules for the start of a Python program: the first runs, and imports the others.
const SITE: [(&str, &str); 4] = [
    ("sitecustomize.py", include_str!("site/sitecustomize.py")),
    ("orlop_dry_run_hooks.py", include_str!("site/orlop_dry_run_hooks.py")),
    ("orlop_dry_run_lines.py", include_str!("site/orlop_dry_run_lines.py")),
    ("orlop_dry_run_values.py", include_str!("site/orlop_dry_run_values.py")),
];

/// The libraries of NVIDIA, without the ends of their file names.
const NVIDIA: [&str; 20] = [
    "libcublas",
    "libcublasLt",
    "libcuda",
    "libcudart",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcusparseLt",
    "libnccl",
    "libnvToolsExt",
    "libnvfatbin",
    "libnvJitLink",
    "libnvidia-ml",
    "libnvrtc",
    "libnvshmem_host",
    "libnvtx3interop",
];

/// Prefixes of their functions, for imports that name no library.
const FUNCTION_PREFIXES: [&str; 15] = [
    "cublas",
    "cuda",
    "__cuda",
    "cudnn",
    "cufft",
    "cuFile",
    "cupti",
    "curand",
    "cusolver",
    "cusparse",
    "nccl",
    "nvJitLink",
    "nvml",
    "nvrtc",
    "nvshmem",
];

/// Libraries that are loaded by name while a program runs, although no library says that it needs them.
const OPENED_LATER: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// The maximum depth of folders in which libraries are searched. It also ends links that form a circle.
const MAX_DEPTH: usize = 6;

/// Stand-ins that were written for one installed PyTorch.
#[derive(Debug, Clone)]
pub struct Injection {
    folder: PathBuf,
    output: PathBuf,
    preloaded: Vec<String>,
    others: usize,
}

impl Injection {
    /// Writes stand-ins for the libraries of NVIDIA that the libraries in `packages` need, a folder of Python
    /// packages. `library` is the built `orlop-dryrun-cuda`. They are written into `output`, which also gets
    /// what the run writes.
    ///
    /// # Errors
    ///
    /// [`DryRunError::NoCudaTorch`] if nothing there needs CUDA, [`DryRunError::UnusableOutput`] if the path
    /// of `output` cannot be passed to the loader, and the failures of reading and writing.
    pub fn prepare(packages: &Path, library: &Path, output: &Path) -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(DryRunError::UnsupportedMachine);
        }
        let library = absolute(library)?;
        let output = absolute(output)?;
        // The loader and Python split lists of folders there, and the loader expands names after a dollar.
        if output.as_os_str().as_encoded_bytes().iter().any(|byte| b":;$".contains(byte)) {
            return Err(DryRunError::UnusableOutput { path: output });
        }
        let exported = LibraryFile::read(&library)?.exports;
        let demand = Demand::of(packages)?;
        let folder = output.join("libraries");
        fs::create_dir_all(folder.join(SITE_FOLDER)).map_err(write_error(&folder))?;
        let mut preloaded = vec![LIBRARY.to_owned(), OTHERS.to_owned()];
        copy(&library, &folder.join(LIBRARY))?;
        let exported: BTreeSet<String> = exported.into_iter().collect();
        let others: Vec<String> = demand.functions.difference(&exported).cloned().collect();
        let count = others.len();
        let stand_in = StandIn::new(OTHERS).needs(LIBRARY).functions(ANSWER, others);
        write(&folder.join(OTHERS), &stand_in.to_bytes())?;
        for (soname, versions) in demand.libraries {
            let stand_in = StandIn::new(&soname).needs(LIBRARY).needs(OTHERS).versions(versions);
            write(&folder.join(&soname), &stand_in.to_bytes())?;
            preloaded.push(soname);
        }
        for (name, text) in SITE {
            write(&folder.join(SITE_FOLDER).join(name), text.as_bytes())?;
        }
        Ok(Self { folder, output, preloaded, others: count })
    }

    /// Returns `true` if `output` is a folder into which an earlier call of [`Injection::prepare`] wrote.
    #[must_use]
    pub fn is_prepared(output: &Path) -> bool {
        output.join("libraries").join(LIBRARY).is_file()
    }

    /// Returns the number of functions that the installed libraries import and that are only answered for.
    #[must_use]
    pub fn others(&self) -> usize {
        self.others
    }

    /// Returns the names of the libraries that are loaded in place of NVIDIA's.
    #[must_use]
    pub fn libraries(&self) -> &[String] {
        &self.preloaded
    }

    /// Returns the environment variables under which a process is a dry run.
    ///
    /// Paths of the loader and of Python, and libraries that are loaded first, are added to those of this
    /// process.
    #[must_use]
    pub fn variables(&self, settings: &DryRunSettings) -> Vec<(&'static str, OsString)> {
        let mut variables = settings.variables();
        variables.extend([
            (OUTPUT, self.output.clone().into_os_string()),
            ("LD_PRELOAD", joined(self.preloaded.join(":").as_ref(), "LD_PRELOAD")),
            ("LD_LIBRARY_PATH", joined(self.folder.as_os_str(), "LD_LIBRARY_PATH")),
            ("PYTHONPATH", joined(self.folder.join(SITE_FOLDER).as_os_str(), "PYTHONPATH")),
            // Triton looks for the driver in the folders of the system otherwise.
            ("TRITON_LIBCUDA_PATH", self.folder.clone().into_os_string()),
            // PyTorch would keep what NVRTC compiled for later runs on a GPU.
            ("USE_PYTORCH_KERNEL_CACHE", "0".into()),
        ]);
        variables
    }
}

/// Returns a list of paths that begins with `first` and goes on with the variable's value.
fn joined(first: &OsStr, variable: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

/// What the libraries of a folder need of NVIDIA's.
#[derive(Debug, Default)]
struct Demand {
    /// The versions that are needed of each library.
    libraries: BTreeMap<String, BTreeSet<String>>,
    functions: BTreeSet<String>,
}

impl Demand {
    fn of(packages: &Path) -> Result<Self> {
        let mut demand = Self::default();
        let mut exported = BTreeSet::new();
        let mut paths = Vec::new();
        libraries_in(packages, 0, &mut paths)?;
        for path in paths {
            // A file with the name of a library may be something else, like a linker script.
            let Ok(library) = LibraryFile::read(&path) else { continue };
            if library.needed.iter().any(|soname| is_nvidia(soname)) {
                demand.add(&library);
                exported.extend(library.exports);
            }
        }
        if !demand.libraries.keys().any(|soname| soname.starts_with("libcudart.so")) {
            return Err(DryRunError::NoCudaTorch { path: packages.to_owned() });
        }
        demand.functions.retain(|name| !exported.contains(name));
        for soname in OPENED_LATER {
            demand.libraries.entry(soname.to_owned()).or_default();
        }
        Ok(demand)
    }

    fn add(&mut self, library: &LibraryFile) {
        for soname in library.needed.iter().filter(|soname| is_nvidia(soname)) {
            self.libraries.entry(soname.clone()).or_default();
        }
        for symbol in &library.imports {
            match &symbol.version {
                Some((soname, version)) if is_nvidia(soname) => {
                    self.libraries.entry(soname.clone()).or_default().insert(version.clone());
                    self.functions.insert(symbol.name.clone());
                }
                None if is_of_nvidia(&symbol.name) => {
                    self.functions.insert(symbol.name.clone());
                }
                _ => {}
            }
        }
    }
}

/// Returns `true` for the name of a library of NVIDIA, like `libcudart.so.13`. Copies that packages bring
/// under names of their own are not replaced: their functions are found in the libraries loaded before them.
///
/// Only numbers follow the name: it is also the name of a file that is written.
fn is_nvidia(soname: &str) -> bool {
    let is_version = |version: &str| version.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    soname.split_once(".so").is_some_and(|(name, version)| NVIDIA.contains(&name) && is_version(version))
}

/// Returns `true` for the name of a function of NVIDIA. Those of the driver have a capital letter after `cu`.
fn is_of_nvidia(function: &str) -> bool {
    let is_driver = function.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    is_driver || FUNCTION_PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// Collects the files that are shared libraries by their names, but those of NVIDIA's own packages. Links are
/// followed. Folders inside that cannot be read are skipped: no program loads a library from there either.
fn libraries_in(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let read_error = |error| DryRunError::Read { path: folder.to_owned(), error };
    for entry in fs::read_dir(folder).map_err(read_error)? {
        let entry = entry.map_err(read_error)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // A link whose target is missing.
        let Ok(kind) = fs::metadata(&path) else { continue };
        if kind.is_dir() && depth < MAX_DEPTH && !(depth == 0 && name == "nvidia") {
            let _ = libraries_in(&path, depth + 1, found);
        } else if kind.is_file() && (name.ends_with(".so") || name.contains(".so.")) {
            found.push(path);
        }
    }
    Ok(())
}

/// Copies a file. Another file that is there is removed first, because a process may have it loaded.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let is_same = fs::canonicalize(to).is_ok_and(|to| fs::canonicalize(from).is_ok_and(|from| from == to));
    if is_same {
        return Ok(());
    }
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(write_error(to))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| DryRunError::Read { path: path.to_owned(), error })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(write_error(path))
}

fn write_error(path: &Path) -> impl Fn(std::io::Error) -> DryRunError {
    let path = path.to_owned();
    move |error| DryRunError::Write { path: path.clone(), error }
}

//! Static plans beside what they replace, and a page that shows one.
//!
//! | question | with |
//! |---|---|
//! | which problem does a recording pose? | [`recorded_problem`] |
//! | what would the same buffers take without a plan? | [`Unplanned`] |
//! | where is each buffer, and when? | [`PlanFile`], as JSON; [`PlanPage`], for a browser |
//! | in which of several memories? | [`SpacesFile`], as JSON |
//!
//! ```
//! use orlop_lab::plan::{PlanFile, Unplanned, recorded_problem};
//! use orlop_plan::Planner;
//! use orlop_trace::history::History;
//!
//! let history = History::parse("a,0,1000\nf,0\na,1,1000\n".as_bytes())?;
//! let problem = recorded_problem(&history, &history.devices[0])?;
//! let plan = Planner::new().plan(&problem);
//! assert_eq!((plan.height(), Unplanned::of(&problem).sum), (1000, 2000));
//! PlanFile::new(&problem, &plan).verify()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod judgement;
mod page;
mod recorded;
mod spaces;
mod unplanned;

pub use self::file::{BoundCheck, PartOf, PlanFile, PlanFileError, PlannedBuffer};
pub use self::page::PlanPage;
pub use self::recorded::recorded_problem;
pub use self::spaces::{SpaceFile, SpacesFile, SpacesFileError};
pub use self::unplanned::Unplanned;

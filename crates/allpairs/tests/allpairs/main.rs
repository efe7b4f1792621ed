//! The workload from a folder of files to the part, as a host runs it.

#[cfg(test)]
mod exactness;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod inputs;
#[cfg(test)]
mod known_answers;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod results;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod support;
#[cfg(test)]
mod symmetric;

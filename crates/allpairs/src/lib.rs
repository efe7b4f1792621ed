//! allpairs

//! toolkit

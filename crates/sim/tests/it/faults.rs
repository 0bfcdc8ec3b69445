//! Each fault does what it says and is counted.

//! Small wrong histories: each rule of the checker can fail.

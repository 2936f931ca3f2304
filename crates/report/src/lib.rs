//! Tables, figures, pages from a trial.

//! The recovery core: checkpoints, images, restart methods and the recovery report.

//! The cloud as clients use it.

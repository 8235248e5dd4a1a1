//! Pages as text: what stands on them, and what hostile text cannot do to them.



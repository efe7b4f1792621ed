//! Which vector instructions the machine has.

/// Vector instructions that there is code for. The same loops by each of them have the same results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// None that not every machine has.
    Portable,
    /// AVX2: 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Checked),
    /// AVX-512 with VL and VNNI: 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512(Checked),
}

/// Proof that the machine was asked and has the instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked(());

impl Vectors {
    /// All that this machine has, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2");
            let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 && is_x86_feature_detected!("avx512vnni") {
                available.push(Self::Avx512(Checked(())));
            }
            if avx2 {
                available.push(Self::Avx2(Checked(())));
            }
        }
        available.push(Self::Portable);
        available
    }

    /// The fastest.
    pub(crate) fn best() -> Self {
        Self::available()[0]
    }
}

/// Calls a function of the modules `portable`, `avx2` and `avx512`, whichever is for these vectors.
macro_rules! by_vectors {
    ($vectors:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $vectors {
            $crate::machine::Vectors::Portable => portable::$name($($argument),*),
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            $crate::machine::Vectors::Avx2(_) => unsafe { avx2::$name($($argument),*) },
            // SAFETY: `Checked` shows that the instructions are there.
            #[cfg(target_arch = "x86_64")]
            $crate::machine::Vectors::Avx512(_) => unsafe { avx512::$name($($argument),*) },
        }
    };
}

pub(super) use by_vectors;

//! What kind of program a file is, as far as it explains why the kernel won't execute it.

use std::io::Read;
use std::path::Path;

use fs_err as fs;

/// Enough for a `#!` line and the headers of an ELF file.
const HEAD: u64 = 64 * 1024;

/// The ELF segment that names the dynamic loader; elf(5).
const PT_INTERP: u64 = 3;

/// What the start of a file says about how it is to be executed.
pub(in crate::runtime) struct Format {
    /// The program that has to execute it.
    pub(in crate::runtime) interpreter: Option<Vec<u8>>,
    /// In words.
    pub(super) description: String,
}

/// Looks at the start of a file; one that can't be read has no known format.
pub(in crate::runtime) fn of(path: &Path) -> Format {
    let mut head = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // What could be read is all that there is to say.
        let _ = file.take(HEAD).read_to_end(&mut head);
    }
    parse(&head)
}

fn parse(head: &[u8]) -> Format {
    if let Some(line) = head.strip_prefix(b"#!") {
        let interpreter = script_interpreter(line);
        return Format { interpreter, description: "a script whose #! line names no program".to_owned() };
    }
    if head.starts_with(b"\x7fELF") {
        let built_for = number(head, 18, 2).map_or("an unknown machine", machine);
        let description = format!("built for {built_for}, but this machine is {}", std::env::consts::ARCH);
        return Format { interpreter: loader(head), description };
    }
    let description = match head {
        [] => "the file is empty",
        _ => "neither a program of this machine nor a script with a #! line",
    };
    Format { interpreter: None, description: description.to_owned() }
}

/// The program in the first line after `#!`, which may start with blanks and have one argument.
fn script_interpreter(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    words.next().map(<[u8]>::to_vec)
}

/// The dynamic loader of a 64-bit little-endian ELF file.
fn loader(head: &[u8]) -> Option<Vec<u8>> {
    let (start, size, count) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
    let mut segments = (0..count).map(|index| start.checked_add(index * size));
    let segment = segments.find_map(|segment| {
        let segment = usize::try_from(segment?).ok()?;
        (number(head, segment, 4)? == PT_INTERP).then_some(segment)
    })?;
    let offset = usize::try_from(number(head, segment + 8, 8)?).ok()?;
    let name = head.get(offset..)?.split(|&byte| byte == 0).next()?;
    Some(name.to_vec())
}

fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// Machine numbers of the ELF header that are met in practice.
fn machine(number: u64) -> &'static str {
    match number {
        3 => "x86 (32 bits)",
        21 => "ppc64",
        22 => "s390x",
        40 => "arm (32 bits)",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        _ => "another machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_first_word_after_the_shebang() {
        let of = |head: &[u8]| parse(head).interpreter.map(|name| String::from_utf8(name).unwrap());
        assert_eq!(of(b"#!/bin/sh\necho"), Some("/bin/sh".to_owned()));
        assert_eq!(of(b"#! /usr/bin/env  python3 -u\n"), Some("/usr/bin/env".to_owned()));
        assert_eq!(of(b"#!/bin/sh\r\n"), Some("/bin/sh\r".to_owned()));
        assert_eq!(of(b"#!\n"), None);
        assert_eq!(of(b"echo"), None);
    }

    #[test]
    fn this_test_program_names_its_dynamic_loader_and_machine() {
        let own = std::env::current_exe().unwrap();
        let format = of(&own);
        let loader = String::from_utf8(format.interpreter.unwrap()).unwrap();
        assert!(loader.contains("ld-"), "{loader}");
        assert!(format.description.starts_with(&format!("built for {}", std::env::consts::ARCH)));
    }

    #[test]
    fn no_cut_of_a_program_is_read_beyond_its_end() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in 0..512 {
            parse(&own[..length]);
        }
    }
}

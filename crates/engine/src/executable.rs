//! What kind of program a file is, as far as it matters where it can be executed.

use std::io::Read;
use std::path::Path;

use fs_err as fs;

/// Enough for a `#!` line and the headers of an ELF file.
const HEAD: u64 = 64 * 1024;

/// The ELF segment that names the dynamic loader; elf(5).
const PT_INTERP: u64 = 3;

/// What the start of a file says about how it is to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The program that has to execute it: the one of a `#!` line or the dynamic loader.
    pub interpreter: Option<Vec<u8>>,
    /// Why a kernel that refuses it does so, in words.
    pub description: String,
    /// The processor that it is built for, in Rust's words; none for what is no ELF file.
    pub machine: Option<&'static str>,
}

/// Looks at the start of a file; one that can't be read is of no known kind.
pub fn look(path: &Path) -> Executable {
    let mut head = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        // What could be read is all that there is to say.
        let _ = file.take(HEAD).read_to_end(&mut head);
    }
    parse(&head)
}

/// Why this machine's kernel will refuse to execute a file, if what can be read of it says so.
///
/// Asked before a program is started: where the kernel refuses, execvp(3) goes on to give the file to
/// `/bin/sh`, which may carry out what was never meant for it.
pub fn refusal(path: &Path) -> Option<String> {
    fs::File::open(path).ok()?;
    let found = look(path);
    match (found.machine, found.interpreter) {
        (Some(machine), _) if machine != std::env::consts::ARCH => Some(found.description),
        (None, None) => Some(found.description),
        _ => None,
    }
}

fn parse(head: &[u8]) -> Executable {
    if let Some(line) = head.strip_prefix(b"#!") {
        let interpreter = script_interpreter(line);
        let description = "a script whose #! line names no program".to_owned();
        return Executable { interpreter, description, machine: None };
    }
    if head.starts_with(b"\x7fELF") {
        let built_for = number(head, 18, 2).map_or("an unknown machine", machine);
        let description = format!("built for {built_for}, but this machine is {}", std::env::consts::ARCH);
        return Executable { interpreter: loader(head), description, machine: Some(built_for) };
    }
    let description = match head {
        [] => "the file is empty",
        _ => "neither a program of this machine nor a script with a #! line",
    };
    Executable { interpreter: None, description: description.to_owned(), machine: None }
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
        let found = look(&own);
        let loader = String::from_utf8(found.interpreter.unwrap()).unwrap();
        assert!(loader.contains("ld-"), "{loader}");
        assert_eq!(found.machine, Some(std::env::consts::ARCH));
        assert!(found.description.starts_with(&format!("built for {}", std::env::consts::ARCH)));
    }

    #[test]
    fn what_is_neither_a_program_of_this_machine_nor_a_script_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train");
        let mut foreign = fs::read(std::env::current_exe().unwrap()).unwrap();
        foreign.truncate(4096);
        assert_eq!(refusal(&std::env::current_exe().unwrap()), None);
        foreign[18] = 22;
        let table: [(&[u8], Option<&str>); 5] = [
            (b"#!/bin/sh\n", None),
            (b"echo hello\n", Some("#! line")),
            (b"#!\n", Some("names no program")),
            (b"", Some("empty")),
            (&foreign, Some("built for s390x")),
        ];
        for (content, expected) in table {
            fs::write(&path, content).unwrap();
            let told = refusal(&path);
            match expected {
                None => assert_eq!(told, None),
                Some(text) => assert!(told.unwrap().contains(text), "{text}"),
            }
        }
        assert_eq!(refusal(&folder.path().join("none")), None);
    }

    #[test]
    fn no_cut_of_a_program_is_read_beyond_its_end() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in 0..512 {
            parse(&own[..length]);
        }
    }
}

//! The monitor's language: one word, and for most a VM by number or name.

/// What the commands do, for the help.
pub const HELP: [&str; 13] = [
    "list         the VMs and their state",
    "vcpus [VM]   vCPUs and why they left the guest, how often",
    "stats VM     its time, its exits and its calls",
    "memory       RAM that is free, and the hypervisor's own",
    "stop VM      stop it, as if its power were cut",
    "start VM     start it, as the bundle has it",
    "reset VM     stop and start it: fresh memory and devices",
    "pause VM     halt its vCPUs; its clock goes on",
    "resume VM    let them go on",
    "move VM VCPU CPU  run a vCPU on another of the VM's CPUs; both by their ids",
    "go VM        show it, and type to it (Ctrl-A m comes back)",
    "lines        show every VM, line by line",
    "off          switch the machine off",
];

/// A command; VMs by what the user called them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// The VMs and their state.
    List,
    /// vCPUs and their exits, of one VM or of all.
    Vcpus(Option<&'a str>),
    /// How a VM has fared.
    Stats(&'a str),
    /// RAM that is free.
    Memory,
    /// Change the state of a VM.
    Change(Change, &'a str),
    /// Move a vCPU to another CPU; both by physical id.
    Move {
        /// The VM.
        vm: &'a str,
        /// The vCPU.
        vcpu: u64,
        /// The CPU of the machine.
        cpu: u32,
    },
    /// Show a VM.
    Go(&'a str),
    /// Show every VM, line by line.
    Lines,
    /// Switch the machine off.
    Off,
    /// Show the help.
    Help,
    /// An empty line.
    Nothing,
}

/// How the state of a VM is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Stop it.
    Stop,
    /// Start it.
    Start,
    /// Stop and start it.
    Reset,
    /// Halt its vCPUs.
    Pause,
    /// Let them go on.
    Resume,
}

impl<'a> Command<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &'a str) -> Result<Self, &'static str> {
        let mut words = line.split_ascii_whitespace();
        let (word, vm) = (words.next(), words.next());
        if word == Some("move") {
            return Self::parse_move(vm, words);
        }
        if words.next().is_some() {
            return Err("too many words");
        }
        let vm = vm.ok_or("which VM? give its number or name");
        let alone = |command| match vm {
            Ok(_) => Err("this command takes no VM"),
            Err(_) => Ok(command),
        };
        let change = |change| vm.map(|vm| Self::Change(change, vm));
        match word {
            None => Ok(Self::Nothing),
            Some("help" | "?") => alone(Self::Help),
            Some("list") => alone(Self::List),
            Some("vcpus") => Ok(Self::Vcpus(vm.ok())),
            Some("stats") => vm.map(Self::Stats),
            Some("memory") => alone(Self::Memory),
            Some("stop") => change(Change::Stop),
            Some("start") => change(Change::Start),
            Some("reset") => change(Change::Reset),
            Some("pause") => change(Change::Pause),
            Some("resume") => change(Change::Resume),
            Some("go") => vm.map(Self::Go),
            Some("lines") => alone(Self::Lines),
            Some("off") => alone(Self::Off),
            Some(_) => Err("no such command; `help` lists them"),
        }
    }

    fn parse_move(
        vm: Option<&'a str>,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Self, &'static str> {
        const USAGE: &str = "move VM VCPU CPU: the ids that `vcpus` shows";
        let (vcpu, cpu) = (words.next(), words.next());
        let (Some(vm), Some(vcpu), Some(cpu), None) = (vm, vcpu, cpu, words.next()) else {
            return Err(USAGE);
        };
        let vcpu = vcpu.parse().map_err(|_| USAGE)?;
        let cpu = cpu.parse().map_err(|_| USAGE)?;
        Ok(Self::Move { vm, vcpu, cpu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words() {
        for (line, command) in [
            ("", Command::Nothing),
            ("  list ", Command::List),
            ("vcpus", Command::Vcpus(None)),
            ("vcpus 1", Command::Vcpus(Some("1"))),
            ("stats web", Command::Stats("web")),
            ("memory", Command::Memory),
            ("stop web", Command::Change(Change::Stop, "web")),
            ("start 0", Command::Change(Change::Start, "0")),
            ("reset 0", Command::Change(Change::Reset, "0")),
            ("pause 0", Command::Change(Change::Pause, "0")),
            ("resume 0", Command::Change(Change::Resume, "0")),
            (
                "move web 64 3",
                Command::Move {
                    vm: "web",
                    vcpu: 64,
                    cpu: 3,
                },
            ),
            ("go 0", Command::Go("0")),
            ("lines", Command::Lines),
            ("off", Command::Off),
            ("?", Command::Help),
        ] {
            assert_eq!(Command::parse(line), Ok(command), "{line}");
        }
        for line in ["stop", "go", "list 1", "off now", "stop a b", "quit"] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
        for line in [
            "move",
            "move a 0",
            "move a 0 b",
            "move a -1 0",
            "move a 0 1 2",
        ] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_help_names_every_command() {
        for line in HELP {
            let (command, _) = line.split_once("  ").unwrap();
            let command = command.replace("VCPU CPU", "1 2");
            assert!(
                Command::parse(command.trim_matches(['[', ']'])).is_ok(),
                "{command}"
            );
        }
    }
}

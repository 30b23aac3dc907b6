//! Configurations, read and checked.

use super::read::{device, list, size};
use super::*;

const GOOD: &str = "
    # A guest on two CPUs.
    name = tester
    vcpus = 4
    ids = 0,5,64,127
    cpus = 0-1
    memory = 512M
    kernel = guest.elf
    command_line = a=1 b
    device = uart
    pv_ipi = true
    pv_steal_time = true
    idle_poll = 50
    restart_wait = 60000
";

fn limits(has_file: &dyn Fn(&str) -> bool) -> Limits<'_> {
    Limits {
        cpus: 2,
        memory: 1 << 30,
        has_file,
    }
}

fn check(config: &VmConfig) -> Result<(), ConfigError> {
    config.check(&limits(&|name| name == "guest.elf"))
}

fn good_with(change: impl FnOnce(&mut VmConfig)) -> Result<(), ConfigError> {
    let mut config = VmConfig::read(GOOD).unwrap();
    change(&mut config);
    check(&config)
}

#[test]
fn a_good_configuration_is_read_and_passes() {
    let config = VmConfig::read(GOOD).unwrap();
    assert_eq!(config.name, "tester");
    assert_eq!(config.ids, [0, 5, 64, 127]);
    assert_eq!(config.cpus, [0, 1]);
    assert_eq!(config.command_line, "a=1 b");
    assert_eq!(config.devices[0].base, Gpa::new(0x1fe0_01e0));
    assert!(config.pv_ipi && config.pv_steal_time);
    assert_eq!((config.idle_poll, config.restart_wait), (50, 60_000));
    assert_eq!(
        config.ram(),
        [(Gpa::new(0), LOW_RAM_END), (Gpa::new(HIGH_RAM), 256 << 20)]
    );
    assert_eq!(check(&config), Ok(()));
}

#[test]
fn what_the_machine_cannot_give_is_refused() {
    let cases: [(&str, Result<(), ConfigError>); 9] = [
        ("id too large", good_with(|c| c.ids[3] = 1024)),
        ("id twice", good_with(|c| c.ids[3] = 5)),
        ("cpu", good_with(|c| c.cpus.push(2))),
        ("memory 0", good_with(|c| c.memory = 0)),
        ("memory odd", good_with(|c| c.memory += 1)),
        ("memory", good_with(|c| c.memory = 2 << 30)),
        ("file", good_with(|c| c.kernel = "x".into())),
        ("other file", good_with(|c| c.initramfs = Some("y".into()))),
        ("vcpus", good_with(|c| c.ids = (0..129).collect())),
    ];
    let errors = [
        ConfigError::Id(1024),
        ConfigError::Id(5),
        ConfigError::NoCpu(2),
        ConfigError::MemorySize(0),
        ConfigError::MemorySize((512 << 20) + 1),
        ConfigError::TooMuchMemory(2 << 30, 1 << 30),
        ConfigError::NoFile("x".into()),
        ConfigError::NoFile("y".into()),
        ConfigError::Vcpus(129),
    ];
    for ((name, result), error) in cases.into_iter().zip(errors) {
        assert_eq!(result, Err(error), "{name}");
    }
}

#[test]
fn claimed_cpus_are_nobody_else_s() {
    let vm = |name: &str, cpus: &str, more: &str| {
        let text = format!("name={name}\nvcpus=1\nmemory=1M\nkernel=k\n{cpus}\n{more}");
        VmConfig::read(&text).unwrap()
    };
    let exclusive = vm("a", "cpus=0-1", "exclusive=true");
    let (beside, shared) = (vm("b", "cpus=2", ""), vm("c", "cpus=1-2", ""));
    assert_eq!(beside.check_beside(&exclusive), Ok(()));
    assert_eq!(vm("d", "", "").check_beside(&exclusive), Ok(()));
    assert_eq!(shared.check_beside(&beside), Ok(()));
    let error = |name: &str| Err(ConfigError::Claimed(1, name.into()));
    assert_eq!(shared.check_beside(&exclusive), error("a"));
    assert_eq!(exclusive.check_beside(&shared), error("c"));
    let same = vm("a", "cpus=3", "").check_beside(&exclusive);
    assert_eq!(same, Err(ConfigError::Name("a".into())));
    let nothing = good_with(|config| (config.exclusive, config.cpus) = (true, vec![]));
    assert_eq!(nothing, Err(ConfigError::NothingToClaim));
}

#[test]
fn overlapping_devices_are_refused() {
    let uart = |base| Device {
        kind: DeviceKind::Uart,
        base: Gpa::new(base),
    };
    let twice = good_with(|c| c.devices.push(uart(0x1fe0_02df)));
    let place = Gpa::new(0x1fe0_01e0);
    assert_eq!(twice, Err(ConfigError::Overlap("uart", place, "uart")));
    let in_ram = good_with(|c| c.devices[0] = uart(LOW_RAM_END - 1));
    let place = Gpa::new(LOW_RAM_END - 1);
    assert_eq!(in_ram, Err(ConfigError::Overlap("uart", place, "RAM")));
    assert_eq!(good_with(|c| c.devices.push(uart(0x1fe0_02e0))), Ok(()));
    let place = Gpa::new(u64::MAX);
    let beyond = good_with(|c| c.devices[0] = uart(u64::MAX));
    assert_eq!(beyond, Err(ConfigError::OutOfSpace("uart", place)));
}

#[test]
fn devices_that_share_what_they_keep_are_alone() {
    for kind in DeviceKind::ALL {
        let two = good_with(|config| {
            config.devices = vec![device(kind.name()).unwrap()];
            let base = Gpa::new(0x1810_0000);
            config.devices.push(Device { kind, base });
        });
        let expected = match kind {
            DeviceKind::Uart => Ok(()),
            _ => Err(ConfigError::Second(kind.name())),
        };
        assert_eq!(two, expected);
    }
    let text = alloc::format!("{}", ConfigError::Second("rtc"));
    assert_eq!(text, "a VM has one rtc, not two");
}

#[test]
fn texts_and_lists_of_devices_have_an_end() {
    let many = |count: u64| {
        let uart = |n| Device {
            kind: DeviceKind::Uart,
            base: Gpa::new(0x2000_0000 + n * 0x100),
        };
        good_with(|config| config.devices = (0..count).map(uart).collect())
    };
    assert_eq!(many(32), Ok(()));
    assert_eq!(many(33), Err(ConfigError::Devices(33)));
    let long = |bytes: usize| {
        let start = alloc::format!("{GOOD}command_line=");
        let rest = "x".repeat(bytes - start.len());
        VmConfig::read(&(start + &rest)).map(|config| config.ids.len())
    };
    assert_eq!(long(MAX_TEXT), Ok(4));
    assert_eq!(long(MAX_TEXT + 1), Err(ConfigError::Long(MAX_TEXT + 1)));
}

#[test]
fn a_cpu_is_named_once() {
    assert_eq!(
        good_with(|config| config.cpus = vec![1, 0, 1]),
        Err(ConfigError::CpuTwice(1))
    );
}

#[test]
fn every_device_has_a_place_beside_the_others() {
    let all = good_with(|config| {
        config.devices = DeviceKind::ALL
            .map(|kind| device(kind.name()).unwrap())
            .to_vec();
    });
    assert_eq!(all, Ok(()));
}

#[test]
fn vcpu_counts_end_at_128() {
    let read = |n: usize| VmConfig::read(&alloc::format!("name=a\nvcpus={n}\nmemory=1M\nkernel=k"));
    for n in [1, 2, 3, 5, 64, 127, 128] {
        assert_eq!(read(n).unwrap().ids.len(), n);
    }
    for n in [0, 129, 100_000] {
        assert_eq!(read(n), Err(ConfigError::Vcpus(n)));
    }
    let text = alloc::format!("{}", ConfigError::Vcpus(129));
    assert_eq!(text, "129 vCPUs: 1 to 128 are possible");
}

#[test]
fn bad_lines_are_named() {
    for (text, error) in [
        ("name", ConfigError::Syntax(1, "no `key = value`")),
        ("\nvcpus = many", ConfigError::Syntax(2, "not a number")),
        ("memory = 1T", ConfigError::Syntax(1, NOT_A_SIZE)),
        ("ids = 3-1", ConfigError::Syntax(1, "not a list of numbers")),
        (
            "ids = 0-99999",
            ConfigError::Syntax(1, "not a list of numbers"),
        ),
        ("device = toaster", ConfigError::Syntax(1, NOT_A_DEVICE)),
        ("idle_poll = 10001", ConfigError::Syntax(1, NOT_A_POLL)),
        ("restart_wait = 3600001", ConfigError::Syntax(1, NOT_A_WAIT)),
        ("colour = red", ConfigError::UnknownKey(1, "colour".into())),
        ("vcpus = 1", ConfigError::Missing("name")),
        ("vcpus = 2\nids = 1", ConfigError::IdCount(1, 2)),
    ] {
        assert_eq!(VmConfig::read(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn numbers_have_units_and_bases() {
    assert_eq!(size("0x10K"), Some(0x4000));
    assert_eq!(size("16777216G"), Some(1 << 54));
    assert_eq!(size("99999999999G"), None);
    assert_eq!(list::<u32>("1, 3-5,0x10"), Some(vec![1, 3, 4, 5, 16]));
}

#[test]
fn a_list_names_no_more_than_there_is_room_for() {
    let numbers = |text| list::<u32>(text).map(|numbers| numbers.len());
    assert_eq!(numbers("0-4095"), Some(4096));
    assert_eq!(numbers("0-4000,0-94"), Some(4096));
    for text in [
        "0-4096",
        "0-4095,0",
        "0-4000,0-4000",
        "5-4",
        "0-0xffffffffffffffff",
    ] {
        assert_eq!(numbers(text), None, "{text}");
    }
}

#[test]
fn the_user_has_the_last_word_on_restarts() {
    use StopReason::{Asked, PowerOff, Reset, Restarted, Stopped};
    for (reason, after) in [
        (Asked(1), [false, false, true]),
        (PowerOff, [false, false, true]),
        (Reset, [false, true, true]),
        (Stopped, [false; 3]),
        (Restarted, [true; 3]),
    ] {
        assert_eq!(Restart::ALL.map(|policy| policy.after(reason)), after);
    }
}

#[test]
fn what_may_stand_there_is_named() {
    let devices = DeviceKind::ALL.map(DeviceKind::name);
    assert!(devices.iter().all(|name| NOT_A_DEVICE.contains(name)));
    let policies = Restart::ALL.map(Restart::name);
    assert!(policies.iter().all(|name| NOT_A_POLICY.contains(name)));
    assert!(NOT_A_POLL.ends_with(&alloc::format!(" {MAX_IDLE_POLL}")));
    assert!(NOT_A_WAIT.ends_with(&alloc::format!(" {MAX_RESTART_WAIT}")));
}

//! What lies in an image: the hypervisor, its bundle and options, and what a person
//! who looks at the stick, or has a boot loader already, wants to read.

use hv::platform::board::Board;

use super::disk::File;

/// Where firmware looks on a removable disk (UEFI Specification 2.10, section 3.5.1.1).
pub const REMOVABLE: &str = "EFI/BOOT/BOOTLOONGARCH64.EFI";
/// The hypervisor on an EFI partition that it shares with others.
pub const APPLICATION: &str = "loongvisor/loongvisor.efi";
/// The VMs, where the hypervisor looks for them on the volume it was loaded from.
pub const BUNDLE: &str = "loongvisor/bundle";
/// Its options, likewise.
pub const OPTIONS: &str = "loongvisor/options";
/// A device tree that counts before firmware's, likewise.
pub const TREE: &str = "loongvisor/devicetree";
/// An entry for GRUB's menu.
pub const GRUB: &str = "loongvisor/grub.cfg";
/// An entry for systemd-boot's menu.
pub const SYSTEMD_BOOT: &str = "loader/entries/loongvisor.conf";
/// What it all is.
const README: &str = "README.txt";

/// The parts that everything is made of.
pub struct Parts {
    /// The machine that it is for.
    pub board: Board,
    /// The hypervisor, as an EFI application.
    pub application: Vec<u8>,
    /// The VMs.
    pub bundle: Vec<u8>,
    /// The VMs, for a person.
    pub summary: String,
    /// More of the hypervisor's options.
    pub append: String,
    /// A device tree, where firmware's isn't to be used.
    pub tree: Option<Vec<u8>>,
}

impl Parts {
    /// The hypervisor's options.
    pub fn options(&self) -> String {
        let options = format!("board={} {}", self.board.name(), self.append);
        options.trim_end().to_owned()
    }

    /// The files of a stick that firmware boots by itself.
    pub fn of_a_stick(self) -> Vec<File> {
        let options = self.options();
        let readme = self.readme(STICK);
        let mut files = vec![
            file(REMOVABLE, self.application),
            file(BUNDLE, self.bundle),
            file(OPTIONS, options + "\n"),
            file(README, readme),
        ];
        files.extend(self.tree.map(|tree| file(TREE, tree)));
        files
    }

    /// The files for an EFI partition that there is already.
    pub fn loose(self) -> Vec<File> {
        let (options, grub, systemd_boot) = (self.options(), self.grub(), self.systemd_boot());
        let readme = self.readme(LOOSE);
        let mut files = vec![
            file(APPLICATION, self.application),
            file(BUNDLE, self.bundle),
            file(OPTIONS, options + "\n"),
            file(GRUB, grub),
            file(SYSTEMD_BOOT, systemd_boot),
            file(README, readme),
        ];
        files.extend(self.tree.map(|tree| file(TREE, tree)));
        files
    }

    /// Entries for GRUB's menu: its `linux` command starts any image with Linux's
    /// header, and its `initrd` offers the bundle by LoadFile2.
    fn grub(&self) -> String {
        let (options, board) = (self.options(), self.board.name());
        format!(
            "# Append this to /etc/grub.d/40_custom, then run update-grub.\n\
             menuentry 'Loongvisor ({board})' {{\n    \
                 search --no-floppy --set=root --file /{APPLICATION}\n    \
                 linux /{APPLICATION} {options}\n    \
                 initrd /{BUNDLE}\n\
             }}\n\
             # The same without GRUB's help: Loongvisor reads its files itself.\n\
             menuentry 'Loongvisor ({board}), by itself' {{\n    \
                 search --no-floppy --set=root --file /{APPLICATION}\n    \
                 chainloader /{APPLICATION} {options}\n\
             }}\n"
        )
    }

    /// An entry for systemd-boot's menu (the Boot Loader Specification's type 1).
    fn systemd_boot(&self) -> String {
        let (options, board) = (self.options(), self.board.name());
        format!(
            "title   Loongvisor ({board})\nlinux   /{APPLICATION}\ninitrd  /{BUNDLE}\n\
             options {options}\n"
        )
    }

    fn readme(&self, how: &str) -> String {
        let (board, vms, options) = (self.board.name(), &self.summary, self.options());
        let text = format!(
            "Loongvisor {} for the board {board}\n\n\
             VMs:      {vms}\n\
             Options:  {options}\n\n\
             Loongvisor is a hypervisor for LoongArch machines with LVZ. {how}\n\n\
             It talks on the serial console, at 115200 baud, 8 data bits, no parity.\n\
             Nothing on any disk is changed. To go back, switch the machine off and boot\n\
             something else.\n",
            env!("CARGO_PKG_VERSION")
        );
        // For whoever looks at it under another system.
        text.replace('\n', "\r\n")
    }
}

/// How a stick is started.
const STICK: &str = "UEFI\nfirmware starts EFI/BOOT/BOOTLOONGARCH64.EFI when it boots from this disk; that\n\
                     reads its VMs from loongvisor/bundle and its options from loongvisor/options.";

/// How loose files are started.
const LOOSE: &str = "Copy\nthe folder loongvisor to the EFI partition. Start loongvisor/loongvisor.efi from\n\
                     the firmware's shell or a boot entry of its own, with GRUB (loongvisor/grub.cfg)\n\
                     or with systemd-boot (loader/entries/loongvisor.conf).";

fn file(path: &'static str, content: impl Into<Vec<u8>>) -> File {
    File {
        path,
        content: content.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(append: &str) -> Parts {
        Parts {
            board: Board::Ls3c5000,
            application: b"MZ".to_vec(),
            bundle: b"LOONGVSR".to_vec(),
            summary: "a (1 vCPUs, 64 MiB)".to_owned(),
            append: append.to_owned(),
            tree: Some(b"\xd0\x0d\xfe\xed".to_vec()),
        }
    }

    fn text<'a>(files: &'a [File], path: &str) -> &'a str {
        let file = files.iter().find(|file| file.path == path).unwrap();
        std::str::from_utf8(&file.content).unwrap()
    }

    #[test]
    fn the_options_name_the_board() {
        assert_eq!(parts("").options(), "board=3c5000");
        let files = parts("log=debug").of_a_stick();
        assert_eq!(text(&files, OPTIONS), "board=3c5000 log=debug\n");
        assert!(files.iter().any(|file| file.path == TREE));
    }

    #[test]
    fn boot_loaders_get_the_options_and_the_bundle() {
        let files = parts("log=debug").loose();
        let grub = text(&files, GRUB);
        let line = "    linux /loongvisor/loongvisor.efi board=3c5000 log=debug\n    \
                    initrd /loongvisor/bundle\n";
        assert!(grub.contains(line), "{grub}");
        let entry = text(&files, SYSTEMD_BOOT);
        assert!(
            entry.contains("\noptions board=3c5000 log=debug\n"),
            "{entry}"
        );
    }

    #[test]
    fn the_readme_says_what_is_in_it() {
        let files = parts("").of_a_stick();
        let readme = text(&files, README);
        assert!(
            readme.contains("VMs:      a (1 vCPUs, 64 MiB)\r\n"),
            "{readme}"
        );
        assert!(readme.lines().all(|line| line.len() < 90), "{readme}");
    }
}

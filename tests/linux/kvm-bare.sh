# Starts a bare-metal guest with KVM, whose output is this machine's. Variables: VCPUS;
# APPEND, the guest's command line. The program is /job.d/guest.elf.

qemu-system-loongarch64 -M virt -accel kvm -cpu la464 -smp "$VCPUS" -m 512 \
    -vga none -display none -nic none -no-reboot -serial stdio -monitor none \
    -kernel /job.d/guest.elf -append "$APPEND" < /dev/null 2>&1
echo "guest-end $?"

"""What a block mixes tokens with: one file each. Attention, with an encoding, is the usual one."""

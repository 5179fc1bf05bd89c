"""The ids that every vocabulary begins with: the one place that says so."""

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_PIECES = (PAD, BOS, EOS, UNK)

pad_id = SPECIAL_PIECES.index(PAD)
bos_id = SPECIAL_PIECES.index(BOS)
eos_id = SPECIAL_PIECES.index(EOS)
unk_id = SPECIAL_PIECES.index(UNK)

"""Bytes of a model's gradients cut into parts of N values, against whole tensors: a message a tensor
as encoded_sizes counts them, of which all but one frame's 28 bytes of message head are taken off,
and a byte for the number of each part but the first added."""
import subprocess, sys, numpy as np, tempfile, os
prog = sys.argv[1]
CODECS = "3lc 3lc:s=4 3lc:mode=paper 3lc:mode=paper,s=1.75 terngrad qsgd inceptionn:bound=2^-10 adacomp topk dryden:fraction=0.01 int8 mqe1bit signsgd oland-raj oland-raj:ef=on".split()
PARTS = [1 << 16, 1 << 17, 1 << 18, 1 << 19]
def kind(name, a):
    return "bias" if a.ndim < 2 else ("conv" if a.ndim == 4 else "recurrent" if "rnn" in name or "lstm" in name else "dense")
for path in sys.argv[2:]:
    data = np.load(path)
    totals = {}
    with tempfile.TemporaryDirectory() as d:
        for cut in [None] + PARTS:
            files, extra = [], 0
            for n, name in enumerate(data.files):
                a = np.ascontiguousarray(data[name], np.float32)
                flat = a.ravel()
                step = cut or max(flat.size, 1)
                for i, b in enumerate(range(0, flat.size, step)):
                    p = f"{d}/{cut}-{n}-{i}"
                    flat[b:b + step].tofile(p)
                    files.append(f"{kind(name, a)}:{p}")
                    if i: extra += 1 - 28
            out = subprocess.run([prog, *CODECS, "--", *files], capture_output=True, text=True, check=True).stdout
            rows = [line.split() for line in out.splitlines()]
            for c, codec in enumerate(CODECS):
                for which in (0, 1):
                    vals = [r[c].split("/") for r in rows]
                    totals[cut, codec, which] = sum(int(v[min(which, len(v) - 1)]) for v in vals) + extra
    print(os.path.basename(path), {n: data[n].size for n in data.files if data[n].size > (1 << 16)})
    for codec in CODECS:
        for which in (0, 1):
            whole = totals[None, codec, which]
            print(f"  {codec:22} {'first' if which == 0 else 'tenth'} {whole:>9} " + " ".join(f"{100 * (totals[cut, codec, which] / whole - 1):+7.2f}%" for cut in PARTS))

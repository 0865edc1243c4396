"""Letters as text shows them, by the letters of the parameters; the others are shown as they are."""

from __future__ import annotations

PRINTED: dict[str, str] = {
    "tied": "θ", "bias": "β", "qkn": "ν", "w": "γ", "zero1": "ω", "sp": "σ", "rfull": "φ", "rcore": "κ",
    "rmlp": "μ", "rnorm": "μₙ", "rup": "μᵤ", "ract": "μₐ", "rshared": "μₛ", "rmoe": "μₑ",
    "ts": "tₛ", "kt": "kₜ", "Lr": "Lᵣ", "nr": "nᵣ", "shards": "z", "lbias": "λ", "pos": "π",
    "fe": "fₑ", "fs": "fₛ", "ld": "L_d", "step": "ℓ", "lq": "r_q", "lk": "rₖ", "dr": "dᵣ", "dv": "d_v",
    "gshards": "z_g", "wshards": "z_w", "mtp": "Lₘ", "zero2": "ω₂", "zero3": "ω₃", "drop": "δ", "adrop": "δₐ",
    "load": "η", "et": "tₑ", "rn": "ρ", "Lf": "L₀", "Ll": "Lₚ₋₁", "eemb": "εₑ", "eloss": "εₗ", "Gr": "gᵣ",
    "nf": "n_f", "nl": "nₗ", "ns": "nₛ", "Ldr": "L_rd", "Ler": "Lᵣₑ", "Hd": "H_d", "He": "Hₑ", "Hc": "H_c",
    "we": "wₑ", "wt": "wₜ", "fcopy": "κ_c", "extra": "x₀",
    "slack": "xᵣ", "context": "x_c", "nccl": "xₙ", "sgate": "ζ", "eshards": "zₑ", "De": "Dₑ", "Psi": "Ψ", "Psil": "Ψₗ",
    "obias": "λₒ", "mbias": "λₘ", "hbias": "λₕ", "acap": "χₐ", "lcap": "χₗ", "win": "wₐ", "wstep": "ℓ_w",
    "dg": "d_f", "kg": "k_f", "same": "ψ", "Lw": "L_rw",
    "Xt": "Xₜ", "yf": "y_f", "yb": "y_b", "yw": "y_w", "yc": "y_c", "yo": "yₒ",
}

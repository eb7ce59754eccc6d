"""The recurrences of Palimpsa and of VLA's state as Triton kernels, forward and backward: no state leaves the registers but one in 16.

A program holds BLOCK_V rows of a head's state and walks through the tokens; backward it computes 16 states again from
the stored one, keeps them in scratch memory and walks back through them. The plain definitions are reference.palimpsa_head and
vla_head, the forms for other devices chunked.palimpsa and delta_rule; gpucheck.py runs gradcheck in float64 and compares the three.
"""

import torch

import chunked

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU: chunked.palimpsa
    triton = None

SEGMENT = 16  # tokens between stored states
BLOCK_V = 8

if triton is not None:
    @triton.jit
    def _forward(q_ptr, k_ptr, v_ptr, b_ptr, decay_ptr, o_ptr, m_ptr, i_ptr, tokens, heads, scale,
                 V: tl.constexpr, K: tl.constexpr, BV: tl.constexpr, SEG: tl.constexpr):
        row = tl.program_id(0)  # sequence · heads + head
        ik, iv = tl.arange(0, K), tl.program_id(1) * BV + tl.arange(0, BV)
        at = (row // heads) * tokens * heads + row % heads  # token t of this head is row at + t·heads of [B·T·H, ·]
        m = tl.zeros((BV, K), dtype=o_ptr.dtype.element_ty)
        imp = tl.zeros((BV, K), dtype=o_ptr.dtype.element_ty)
        for seg in range(0, tokens // SEG):
            keep = (row * (tokens // SEG) + seg) * V * K + iv[:, None] * K + ik[None, :]
            tl.store(m_ptr + keep, m)
            tl.store(i_ptr + keep, imp)
            for t in range(seg * SEG, seg * SEG + SEG):
                r = at + t * heads
                k = tl.load(k_ptr + r * K + ik)
                q = tl.load(q_ptr + r * K + ik)
                v = tl.load(v_ptr + r * V + iv)
                b = tl.load(b_ptr + r * V + iv)
                decay = tl.load(decay_ptr + r)
                m = decay * m + v[:, None] * k[None, :]
                imp = decay * imp + b[:, None] * (k * k)[None, :]
                o = tl.sum(m / (imp + 1.0) * q[None, :], 1) * scale
                tl.store(o_ptr + r * V + iv, o)

    @triton.jit
    def _backward(q_ptr, k_ptr, v_ptr, b_ptr, decay_ptr, do_ptr, m_ptr, i_ptr, sm_ptr, si_ptr,
                  dq_ptr, dk_ptr, dv_ptr, db_ptr, dl_ptr, tokens, heads, rows, scale,
                  V: tl.constexpr, K: tl.constexpr, BV: tl.constexpr, SEG: tl.constexpr):
        row, part = tl.program_id(0), tl.program_id(1)
        ik, iv = tl.arange(0, K), part * BV + tl.arange(0, BV)
        at = (row // heads) * tokens * heads + row % heads
        inner = tl.arange(0, BV)[:, None] * K + ik[None, :]
        scratch = (row * (V // BV) + part) * SEG * BV * K
        part_at = part * rows  # dq, dk, dl: one partial sum per block of V, [V / BV, B·T·H, ·]
        dm = tl.zeros((BV, K), dtype=do_ptr.dtype.element_ty)
        di = tl.zeros((BV, K), dtype=do_ptr.dtype.element_ty)
        for back in range(0, tokens // SEG):
            seg = tokens // SEG - 1 - back
            keep = (row * (tokens // SEG) + seg) * V * K + iv[:, None] * K + ik[None, :]
            m = tl.load(m_ptr + keep)
            imp = tl.load(i_ptr + keep)
            for i in range(0, SEG):
                r = at + (seg * SEG + i) * heads
                k = tl.load(k_ptr + r * K + ik)
                v = tl.load(v_ptr + r * V + iv)
                b = tl.load(b_ptr + r * V + iv)
                decay = tl.load(decay_ptr + r)
                m = decay * m + v[:, None] * k[None, :]
                imp = decay * imp + b[:, None] * (k * k)[None, :]
                tl.store(sm_ptr + scratch + i * BV * K + inner, m)
                tl.store(si_ptr + scratch + i * BV * K + inner, imp)
            tl.debug_barrier()
            for j in range(0, SEG):
                i = SEG - 1 - j
                r = at + (seg * SEG + i) * heads
                k = tl.load(k_ptr + r * K + ik)
                q = tl.load(q_ptr + r * K + ik)
                v = tl.load(v_ptr + r * V + iv)
                b = tl.load(b_ptr + r * V + iv)
                decay = tl.load(decay_ptr + r)
                do = tl.load(do_ptr + r * V + iv) * scale
                m = tl.load(sm_ptr + scratch + i * BV * K + inner)
                imp = tl.load(si_ptr + scratch + i * BV * K + inner)
                w = 1.0 / (imp + 1.0)
                mu = m * w
                g = do[:, None] * q[None, :] * w  # gradient of this read with respect to M
                dm += g
                di -= g * mu
                dv = tl.sum(dm * k[None, :], 1)
                db = tl.sum(di * (k * k)[None, :], 1)
                dk = tl.sum(dm * v[:, None], 0) + 2.0 * k * tl.sum(di * b[:, None], 0)
                # log decay: ⟨dM, decay·M_before⟩ and the same for Ī, where decay·M_before = M − v kᵀ
                dl = tl.sum(tl.sum(dm * m + di * imp, 1) - dv * v - db * b, 0)
                tl.store(dq_ptr + (part_at + r) * K + ik, tl.sum(do[:, None] * mu, 0))
                tl.store(dk_ptr + (part_at + r) * K + ik, dk)
                tl.store(dl_ptr + part_at + r, dl)
                tl.store(dv_ptr + r * V + iv, dv)
                tl.store(db_ptr + r * V + iv, db)
                dm = dm * decay
                di = di * decay
            tl.debug_barrier()

    @triton.jit
    def _delta_forward(q_ptr, k_ptr, a_ptr, v_ptr, o_ptr, s_ptr, tokens, heads,
                       V: tl.constexpr, K: tl.constexpr, BV: tl.constexpr, SEG: tl.constexpr):
        row = tl.program_id(0)
        ik, iv = tl.arange(0, K), tl.program_id(1) * BV + tl.arange(0, BV)
        at = (row // heads) * tokens * heads + row % heads
        s = tl.zeros((BV, K), dtype=o_ptr.dtype.element_ty)
        for seg in range(0, tokens // SEG):
            tl.store(s_ptr + (row * (tokens // SEG) + seg) * V * K + iv[:, None] * K + ik[None, :], s)
            for t in range(seg * SEG, seg * SEG + SEG):
                r = at + t * heads
                k = tl.load(k_ptr + r * K + ik)
                a = tl.load(a_ptr + r * K + ik)
                q = tl.load(q_ptr + r * K + ik)
                e = tl.load(v_ptr + r * V + iv) - tl.sum(s * k[None, :], 1)
                s += e[:, None] * a[None, :]
                tl.store(o_ptr + r * V + iv, tl.sum(s * q[None, :], 1))

    @triton.jit
    def _delta_backward(q_ptr, k_ptr, a_ptr, v_ptr, do_ptr, s_ptr, scratch_ptr, dq_ptr, dk_ptr, da_ptr, dv_ptr, tokens, heads, rows,
                        V: tl.constexpr, K: tl.constexpr, BV: tl.constexpr, SEG: tl.constexpr):
        row, part = tl.program_id(0), tl.program_id(1)
        ik, iv = tl.arange(0, K), part * BV + tl.arange(0, BV)
        at = (row // heads) * tokens * heads + row % heads
        inner = tl.arange(0, BV)[:, None] * K + ik[None, :]
        scratch = (row * (V // BV) + part) * SEG * BV * K
        part_at = part * rows  # dq, dk, da: one partial sum per block of V, [V / BV, B·T·H, K]
        ds = tl.zeros((BV, K), dtype=do_ptr.dtype.element_ty)
        for back in range(0, tokens // SEG):
            seg = tokens // SEG - 1 - back
            s = tl.load(s_ptr + (row * (tokens // SEG) + seg) * V * K + iv[:, None] * K + ik[None, :])
            for i in range(0, SEG):
                r = at + (seg * SEG + i) * heads
                k = tl.load(k_ptr + r * K + ik)
                a = tl.load(a_ptr + r * K + ik)
                tl.store(scratch_ptr + scratch + i * BV * K + inner, s)  # before token i
                s += (tl.load(v_ptr + r * V + iv) - tl.sum(s * k[None, :], 1))[:, None] * a[None, :]
            tl.debug_barrier()
            for j in range(0, SEG):
                i = SEG - 1 - j
                r = at + (seg * SEG + i) * heads
                k = tl.load(k_ptr + r * K + ik)
                a = tl.load(a_ptr + r * K + ik)
                q = tl.load(q_ptr + r * K + ik)
                do = tl.load(do_ptr + r * V + iv)
                before = tl.load(scratch_ptr + scratch + i * BV * K + inner)
                e = tl.load(v_ptr + r * V + iv) - tl.sum(before * k[None, :], 1)
                after = before + e[:, None] * a[None, :]
                ds += do[:, None] * q[None, :]
                de = tl.sum(ds * a[None, :], 1)
                tl.store(dq_ptr + (part_at + r) * K + ik, tl.sum(do[:, None] * after, 0))
                tl.store(da_ptr + (part_at + r) * K + ik, tl.sum(e[:, None] * ds, 0))
                tl.store(dk_ptr + (part_at + r) * K + ik, -tl.sum(de[:, None] * before, 0))
                tl.store(dv_ptr + r * V + iv, de)
                ds -= de[:, None] * k[None, :]
            tl.debug_barrier()


class _Palimpsa(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, b, log_decay, scale):
        q, k, v, b = (x.contiguous() for x in (q, k, v, b))
        decay = torch.exp(log_decay).contiguous()
        batch, tokens, heads, kd = k.shape
        vd = v.shape[-1]
        out = torch.empty_like(v)
        states = [torch.empty(batch * heads, tokens // SEGMENT, vd, kd, device=k.device, dtype=k.dtype) for _ in range(2)]
        _forward[(batch * heads, vd // BLOCK_V)](q, k, v, b, decay, out, *states, tokens, heads, scale,
                                                 V=vd, K=kd, BV=BLOCK_V, SEG=SEGMENT, num_warps=1)
        ctx.save_for_backward(q, k, v, b, decay, *states)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, do):
        q, k, v, b, decay, m, imp = ctx.saved_tensors
        batch, tokens, heads, kd = k.shape
        vd = v.shape[-1]
        parts, rows = vd // BLOCK_V, batch * tokens * heads
        scratch = [torch.empty(batch * heads * parts, SEGMENT, BLOCK_V, kd, device=k.device, dtype=k.dtype) for _ in range(2)]
        dq, dk = (torch.empty(parts, *k.shape, device=k.device, dtype=k.dtype) for _ in range(2))
        dl = torch.empty(parts, *decay.shape, device=k.device, dtype=k.dtype)
        dv, db = torch.empty_like(v), torch.empty_like(b)
        _backward[(batch * heads, parts)](q, k, v, b, decay, do.contiguous(), m, imp, *scratch, dq, dk, dv, db, dl,
                                          tokens, heads, rows, ctx.scale, V=vd, K=kd, BV=BLOCK_V, SEG=SEGMENT, num_warps=1)
        return dq.sum(0), dk.sum(0), dv, db, dl.sum(0), None


class _DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, alpha, v):
        q, k, alpha, v = (x.contiguous() for x in (q, k, alpha, v))
        batch, tokens, heads, kd = k.shape
        vd = v.shape[-1]
        out = torch.empty_like(v)
        states = torch.empty(batch * heads, tokens // SEGMENT, vd, kd, device=k.device, dtype=k.dtype)
        _delta_forward[(batch * heads, vd // BLOCK_V)](q, k, alpha, v, out, states, tokens, heads,
                                                       V=vd, K=kd, BV=BLOCK_V, SEG=SEGMENT, num_warps=1)
        ctx.save_for_backward(q, k, alpha, v, states)
        return out

    @staticmethod
    def backward(ctx, do):
        q, k, alpha, v, states = ctx.saved_tensors
        batch, tokens, heads, kd = k.shape
        vd = v.shape[-1]
        parts, rows = vd // BLOCK_V, batch * tokens * heads
        scratch = torch.empty(batch * heads * parts, SEGMENT, BLOCK_V, kd, device=k.device, dtype=k.dtype)
        dq, dk, da = (torch.empty(parts, *k.shape, device=k.device, dtype=k.dtype) for _ in range(3))
        dv = torch.empty_like(v)
        _delta_backward[(batch * heads, parts)](q, k, alpha, v, do.contiguous(), states, scratch, dq, dk, da, dv, tokens, heads, rows,
                                                V=vd, K=kd, BV=BLOCK_V, SEG=SEGMENT, num_warps=1)
        return dq.sum(0), dk.sum(0), da.sum(0), dv


def fits(k, v):
    """Tile shapes are powers of two; a head's V rows are dealt out in blocks."""
    kd = k.shape[-1]
    return triton is not None and k.is_cuda and kd >= 8 and kd & (kd - 1) == 0 and v.shape[-1] % BLOCK_V == 0


def delta_rule(q, k, alpha, v):
    """As chunked.delta_rule; fused on a GPU where the shapes allow it."""
    return _DeltaRule.apply(q, k, alpha, v) if fits(k, v) else chunked.delta_rule(q, k, alpha, v)


def palimpsa(q, k, value, b, log_decay, scale):
    """As chunked.palimpsa; fused on a GPU where the shapes allow it."""
    if not fits(k, value):
        return chunked.palimpsa(q, k, value, b, log_decay, scale)
    return _Palimpsa.apply(q, k, value, b, log_decay, scale)

// Row, Rows: activations of ReferenceForward in double, and the token-wise functions on them.
//
// Equation:  docs/model-format.md section 2, names as there.
// Shapes:    Row: [channels]; Rows: [T][channels]; w: [out][in]; RmsNorm's gain may be shorter than
//            a row and is then applied to each run of its length.
// Units:     none.
// Requires:  row lengths that fit the tensors.
// Rejects:   none.
// Effects:   write what is passed by pointer.
// Numerics:  plain loops in double; the oracle of the f32 engine, never tuned.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_ROWS_REF_H_
#define LETHE_SERVER_MODEL_ROWS_REF_H_

#include <cstddef>
#include <vector>

#include "server/model/safetensors.h"

namespace lethe::reference {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

double Sigmoid(double x);
double Silu(double x);
double Softplus(double x);
double Dot(const double* a, const double* b, size_t size);
// l2 of `size` elements in place.
void L2(double* x, size_t size);

void RmsNorm(const Tensor& gain, double eps, Row* x);
Rows Normed(const Rows& x, const Tensor& gain, double eps);
Row Apply(const Tensor& w, const Row& x);
Rows Apply(const Tensor& w, const Rows& x);
// Null bias: none.
Rows Conv(const Tensor& w, const Tensor* bias, const Rows& z);
void Add(const Rows& y, Rows* x);

}  // namespace lethe::reference

#endif  // LETHE_SERVER_MODEL_ROWS_REF_H_

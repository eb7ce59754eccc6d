#include "kernels/vla/vla_chunk_cpu.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/math/math.h"

namespace lethe {
namespace {

constexpr size_t kTokens = static_cast<size_t>(kVlaChunkTokens);

// Row-major f64.
struct Matrix {
  Matrix(size_t num_rows, size_t num_columns)
      : rows(num_rows), columns(num_columns), elements(num_rows * num_columns) {}
  double* Row(size_t row) { return elements.data() + row * columns; }
  const double* Row(size_t row) const { return elements.data() + row * columns; }

  size_t rows;
  size_t columns;
  std::vector<double> elements;
};

// c += sign a b; where lower, element (i, p) of a counts for p <= i only.
void AddProduct(double sign, const Matrix& a, const Matrix& b, bool is_lower, Matrix* c) {
  for (size_t i = 0; i < a.rows; ++i) {
    const size_t end = is_lower ? i + 1 : a.columns;
    for (size_t p = 0; p < end; ++p) {
      const double factor = sign * a.Row(i)[p];
      for (size_t j = 0; j < b.columns; ++j) {
        c->Row(i)[j] = std::fma(factor, b.Row(p)[j], c->Row(i)[j]);
      }
    }
  }
}

Matrix Product(const Matrix& a, const Matrix& b, bool is_lower = false) {
  Matrix c(a.rows, b.columns);
  AddProduct(1.0, a, b, is_lower, &c);
  return c;
}

Matrix Transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.columns; ++j) t.Row(j)[i] = a.Row(i)[j];
  }
  return t;
}

// Elements above the diagonal become zero, with is_strict those on it too.
void KeepLower(bool is_strict, Matrix* a) {
  for (size_t i = 0; i < a->rows; ++i) {
    for (size_t j = i + (is_strict ? 0 : 1); j < a->columns; ++j) a->Row(i)[j] = 0.0;
  }
}

// L^-1 of a = L L^T, by elimination in [a I]: its pivots are squares of L's diagonal, and with a -
// pivot_min I positive semidefinite none is smaller than pivot_min.
Matrix CholeskyInverse(Matrix a, double pivot_min) {
  const size_t size = a.rows;
  Matrix inverse(size, size);
  for (size_t i = 0; i < size; ++i) inverse.Row(i)[i] = 1.0;
  for (size_t p = 0; p < size; ++p) {
    const double pivot = a.Row(p)[p] < pivot_min ? pivot_min : a.Row(p)[p];
    for (size_t i = p + 1; i < size; ++i) {
      const double factor = -a.Row(i)[p] / pivot;
      for (size_t j = p; j < size; ++j) a.Row(i)[j] = std::fma(factor, a.Row(p)[j], a.Row(i)[j]);
      for (size_t j = 0; j <= p; ++j) {
        inverse.Row(i)[j] = std::fma(factor, inverse.Row(p)[j], inverse.Row(i)[j]);
      }
    }
    for (size_t j = 0; j <= p; ++j) inverse.Row(p)[j] /= std::sqrt(pivot);
  }
  return inverse;
}

// (I + a)^-1 for a strictly lower a.
Matrix UnitLowerInverse(const Matrix& a) {
  Matrix inverse(a.rows, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    inverse.Row(i)[i] = 1.0;
    for (size_t p = 0; p < i; ++p) {
      for (size_t j = 0; j <= p; ++j) {
        inverse.Row(i)[j] = std::fma(-a.Row(i)[p], inverse.Row(p)[j], inverse.Row(i)[j]);
      }
    }
  }
  return inverse;
}

// One head of one sequence.
class Head {
 public:
  Head(const VlaOptions& options, const VlaChunkBatch& batch, size_t slot, size_t head)
      : options_(options),
        batch_(batch),
        dim_(static_cast<size_t>(options.key_dim)),
        stride_(static_cast<size_t>(options.num_heads) * dim_),
        head_offset_(head * dim_),
        state_offset_((slot * static_cast<size_t>(options.num_heads) + head) * dim_ * dim_) {}

  // The chunk from this token on.
  void Fold(size_t token) {
    const bool is_rls = options_.variant == VlaVariant::kRls;
    const Matrix key_units = KeyUnits(token);
    const Matrix directions = is_rls ? key_units : Rows(batch_.write_direction, token);
    const Matrix alpha = Alpha(key_units, directions);
    Matrix mixing = Product(key_units, Transposed(alpha));
    KeepLower(/*is_strict=*/true, &mixing);
    mixing = UnitLowerInverse(mixing);
    const Matrix state = State(batch_.s);
    const Matrix state_transposed = Transposed(state);
    Matrix errors = Product(mixing, Rows(batch_.v, token), true);
    AddProduct(-1.0, Product(mixing, key_units, true), state_transposed, false, &errors);
    if (batch_.out != nullptr) Read(token, alpha, state_transposed, errors);
    AddToState(Product(Transposed(errors), alpha), batch_.s);
    AddToState(Product(Transposed(directions), directions), batch_.gram);
  }

  void WriteInverse() const {
    const Matrix inverse = CholeskyInverse(State(batch_.gram), options_.lambda0);
    const Matrix a = Product(Transposed(inverse), inverse);
    for (size_t i = 0; i < dim_; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const float element = static_cast<float>(a.Row(i)[j]);
        batch_.a[state_offset_ + i * dim_ + j] = element;
        batch_.a[state_offset_ + j * dim_ + i] = element;
      }
    }
  }

 private:
  Matrix Rows(const float* x, size_t token) const {
    Matrix rows(kTokens, dim_);
    for (size_t t = 0; t < kTokens; ++t) {
      const float* row = x + (token + t) * stride_ + head_offset_;
      for (size_t j = 0; j < dim_; ++j) rows.Row(t)[j] = row[j];
    }
    return rows;
  }

  Matrix KeyUnits(size_t token) const {
    Matrix units = Rows(batch_.k, token);
    for (size_t t = 0; t < kTokens; ++t) Scale(kL2Epsilon, 1.0, units.Row(t));
    return units;
  }

  // x / sqrt(sum x^2 / count + epsilon)
  void Scale(double epsilon, double count, double* x) const {
    double sum = 0.0;
    for (size_t j = 0; j < dim_; ++j) sum = std::fma(x[j], x[j], sum);
    const double root = std::sqrt(sum / count + epsilon);
    for (size_t j = 0; j < dim_; ++j) x[j] /= root;
  }

  Matrix State(const float* pool) const {
    Matrix state(dim_, dim_);
    for (size_t i = 0; i < dim_ * dim_; ++i) state.elements[i] = pool[state_offset_ + i];
    return state;
  }

  void AddToState(const Matrix& sum, float* pool) const {
    for (size_t i = 0; i < dim_ * dim_; ++i) {
      float& element = pool[state_offset_ + i];
      element = static_cast<float>(element + sum.elements[i]);
    }
  }

  Matrix Alpha(const Matrix& key_units, const Matrix& directions) const {
    const Matrix inverse = CholeskyInverse(State(batch_.gram), options_.lambda0);
    const Matrix inverse_transposed = Transposed(inverse);
    const Matrix y_u = Product(directions, inverse_transposed);
    Matrix y_k = Product(key_units, inverse_transposed);
    Matrix gram = Product(y_u, Transposed(y_u));
    for (size_t t = 0; t < kTokens; ++t) gram.Row(t)[t] += 1.0;
    const Matrix f = Product(CholeskyInverse(gram, 1.0), y_u, true);
    AddProduct(-1.0, Product(y_k, Transposed(f)), f, true, &y_k);
    Matrix alpha = Product(y_k, inverse);
    if (options_.variant == VlaVariant::kVla) {
      for (size_t t = 0; t < kTokens; ++t) Scale(kL2Epsilon, 1.0, alpha.Row(t));
    }
    return alpha;
  }

  void Read(size_t token, const Matrix& alpha, const Matrix& state_transposed,
            const Matrix& errors) const {
    const Matrix q = Rows(batch_.q, token);
    Matrix out = Product(q, state_transposed);
    AddProduct(1.0, Product(q, Transposed(alpha)), errors, true, &out);
    for (size_t t = 0; t < kTokens; ++t) {
      Scale(kVlaReadEpsilon, static_cast<double>(dim_), out.Row(t));
      float* row = batch_.out + (token + t) * stride_ + head_offset_;
      for (size_t j = 0; j < dim_; ++j) row[j] = static_cast<float>(out.Row(t)[j]);
    }
  }

  const VlaOptions& options_;
  const VlaChunkBatch& batch_;
  const size_t dim_;
  const size_t stride_;  // from token to token
  const size_t head_offset_;
  const size_t state_offset_;
};

}  // namespace

void VlaChunkCpu(const VlaOptions& options, const VlaChunkBatch& batch) {
  for (int64_t sequence = 0; sequence < batch.num_sequences; ++sequence) {
    const auto begin = static_cast<size_t>(batch.offsets[sequence]);
    const auto end = static_cast<size_t>(batch.offsets[sequence + 1]);
    if (begin == end) continue;
    for (int64_t head = 0; head < options.num_heads; ++head) {
      Head state(options, batch, static_cast<size_t>(batch.slots[sequence]),
                 static_cast<size_t>(head));
      for (size_t token = begin; token < end; token += kTokens) state.Fold(token);
      state.WriteInverse();
    }
  }
}

}  // namespace lethe

// Non-owning views of row-major matrices in host memory: what every kernel takes and returns.
#ifndef KURUMA_BASE_VIEW_H_
#define KURUMA_BASE_VIEW_H_

#include <cstdint>
#include <type_traits>

namespace kuruma {

// `rows` rows of `cols` contiguous elements, row r starting `stride` elements after row r-1.
// A view owns nothing; it is valid as long as what it looks at. Cheap to copy, any thread.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements, >= cols

  MatrixView() = default;
  MatrixView(T* d, int64_t r, int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  MatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}

  // A mutable view converts to a read-only one.
  operator MatrixView<const T>() const  // NOLINT: implicit on purpose
      requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }

  T* row(int64_t r) const { return data + r * stride; }
  // Rows [begin, begin + count).
  MatrixView Slice(int64_t begin, int64_t count) const {
    return {data + begin * stride, count, cols, stride};
  }
  // Columns [begin, begin + count) of every row.
  MatrixView Columns(int64_t begin, int64_t count) const {
    return {data + begin, rows, count, stride};
  }
};

using Rows = MatrixView<float>;
using ConstRows = MatrixView<const float>;

}  // namespace kuruma

#endif  // KURUMA_BASE_VIEW_H_

// Matrix products of every CPU table: agreement_test_util.h says what is compared.
#include <gtest/gtest.h>

#include "kernels/agreement_test_util.h"
#include "kernels/cpu/cpu_ops.h"

namespace kuruma::kernels {
namespace {

// kOutlier: FP8 values, the first row far beyond the others.
enum class Inputs { kFloat, kBf16, kFp8, kOutlier };

// Allowed: a chain of K / 8 float32 additions and the tree of 8, each within half a unit of the sum
// of magnitudes; twice that where the portable target rounds products of general floats.
Case MatMulCase(Rng& rng, const MatrixShape& shape, int64_t m, Inputs inputs, bool bf16) {
  auto w = std::make_shared<OwnedMatrix>(RandomMatrix(rng, shape));
  Floats values = Normal(rng, m * shape.cols);
  if (inputs == Inputs::kBf16) values = ToBf16(values);
  if (inputs == Inputs::kFp8 || inputs == Inputs::kOutlier) values = ToFp8(values);
  if (inputs == Inputs::kOutlier) {
    for (int64_t k = 0; k < shape.cols; ++k) values[k] *= 0x1p40f;
  }
  auto x = std::make_shared<Floats>(values);
  auto magnitude = std::make_shared<Floats>(m * shape.rows);
  Floats row(shape.cols);
  for (int64_t n = 0; n < shape.rows; ++n) {
    DequantizeRow(w->view, n, row.data());
    for (int64_t i = 0; i < m; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < shape.cols; ++k)
        sum += std::fabs(row[k] * values[i * shape.cols + k]);
      (*magnitude)[i * shape.rows + n] = sum;
    }
  }
  Case c;
  c.name = "matmul format " + std::to_string(static_cast<int>(shape.format)) + " m " +
           std::to_string(m) + " n " + std::to_string(shape.rows) + " k " +
           std::to_string(shape.cols);
  c.rows = m;
  c.cols = shape.rows;
  c.run = [w, x, shape, bf16](const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                              float* out) {
    MatMulTask task;
    task.weight = w->view;
    task.x = {x->data() + begin * shape.cols, count, shape.cols};
    task.y = {out, count, shape.rows};
    task.round_bf16 = bf16;
    ops.matmul(pool, {&task, 1});
  };
  const double roundings = 2.0 * (static_cast<double>(shape.cols) / 8 + 4);
  c.allowed = [=](int64_t r, int64_t n, float expected) {
    return roundings * kUlp * (*magnitude)[r * shape.rows + n] +
           (bf16 ? kBf16Step * std::fabs(expected) : 0);
  };
  return c;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8,
                                     WeightFormat::kFp4};

TEST(MatMul, AgreesForEveryShape) {
  Rng rng(1);
  for (const WeightFormat format : kFormats) {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 17, 64}) {
      for (const int64_t n : {1, 7, 45}) {
        for (const int64_t k : {32, 96, 1280}) {
          CheckCase(MatMulCase(rng, {format, n, k}, m, Inputs::kFloat, m % 2 == 0));
        }
      }
    }
    CheckCase(MatMulCase(rng, {format, 301, 5120}, 3, Inputs::kFp8, true));
    CheckCase(MatMulCase(rng, {format, 301, 640}, 130, Inputs::kFp8, true));
  }
}

TEST(MatMul, TakesAnyColumnCountOfUnpackedFormats) {
  Rng rng(2);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    for (const int64_t k : {1, 7, 33, 100, 333}) {
      for (const int64_t m : {1, 3, 9}) {
        CheckCase(MatMulCase(rng, {format, 13, k}, m, Inputs::kFloat, false));
      }
    }
  }
}

// Scale blocks other than 32 x 32, and scales for which the fast FP8 decoder has no room.
TEST(MatMul, TakesAnyScaleBlock) {
  Rng rng(3);
  for (const int64_t m : {1, 4, 6}) {
    for (const MatrixShape& shape : {MatrixShape{WeightFormat::kFp8, 150, 256, 128, 128},
                                     {WeightFormat::kFp8, 9, 96, 1, 32},
                                     {WeightFormat::kFp8, 40, 64, 5, 64},
                                     {WeightFormat::kFp8, 70, 64, 32, 32, 130},
                                     {WeightFormat::kFp8, 70, 64, 32, 32, 126},
                                     {WeightFormat::kFp8, 70, 64, 32, 32, 0},
                                     {WeightFormat::kFp4, 9, 128, 1, 64},
                                     {WeightFormat::kFp4, 9, 64, 1, 32, 140},
                                     {WeightFormat::kFp4, 9, 64, 1, 32, 0}}) {
      CheckCase(MatMulCase(rng, shape, m, Inputs::kFp8, false));
    }
  }
}

// FP8 scales may go to weights or to activations, as the largest activation of the batch allows:
// the rows beside an outlier keep their bits.
TEST(MatMul, AnOutlierInTheBatchChangesNoOtherRow) {
  Rng rng(8);
  for (const int64_t m : {2, 5, 16, 20}) {
    CheckCase(MatMulCase(rng, {WeightFormat::kFp8, 70, 320}, m, Inputs::kOutlier, false));
  }
}

TEST(MatMul, AViewOfRowsEqualsTheRowsOfTheWhole) {
  Rng rng(4);
  for (const WeightFormat format : kFormats) {
    const OwnedMatrix w = RandomMatrix(rng, {format, 200, 96});
    const Floats x = Normal(rng, 2 * 96);
    for (const OpTable* ops : RunnableCpuOps()) {
      ThreadPool pool(2);
      Floats whole(2 * 200), part(2 * 90);
      const std::vector<MatMulTask> tasks = {
          {w.view, {x.data(), 2, 96}, {whole.data(), 2, 200}},
          {w.view.Slice(45, 90), {x.data(), 2, 96}, {part.data(), 2, 90}}};
      ops->matmul(pool, tasks);
      for (int r = 0; r < 2; ++r) {
        for (int n = 0; n < 90; ++n) EXPECT_EQ(part[r * 90 + n], whole[r * 200 + 45 + n]);
      }
    }
  }
}

// Many products in one call, as the experts of a layer: any order and company gives equal bits.
TEST(MatMul, TasksDoNotInfluenceEachOther) {
  Rng rng(5);
  std::vector<OwnedMatrix> weights;
  std::vector<Floats> inputs, alone, together;
  std::vector<MatMulTask> tasks;
  const int64_t k = 320;
  for (int i = 0; i < 40; ++i) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 90);
    const int64_t m = static_cast<int64_t>(rng() % 9);
    weights.push_back(RandomMatrix(rng, {kFormats[i % 4], n, k}));
    inputs.push_back(ToFp8(Normal(rng, m * k)));
    alone.emplace_back(m * n, -1.0f);
    together.emplace_back(m * n, -1.0f);
  }
  for (int i = 0; i < 40; ++i) {
    const int64_t m = static_cast<int64_t>(inputs[i].size()) / k;
    const int64_t n = weights[i].view.rows;
    tasks.push_back({weights[i].view, {inputs[i].data(), m, k}, {alone[i].data(), m, n}});
  }
  for (const OpTable* ops : RunnableCpuOps()) {
    ThreadPool pool(3);
    std::vector<MatMulTask> shuffled = tasks;
    for (const MatMulTask& task : tasks) ops->matmul(pool, {&task, 1});
    for (int i = 0; i < 40; ++i) shuffled[i].y.data = together[i].data();
    std::shuffle(shuffled.begin(), shuffled.end(), rng);
    ops->matmul(pool, shuffled);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(FirstDifference(alone[i], together[i]), -1) << i;
  }
}

// What release numerics multiply has exact products, so targets with and without fused
// multiply-add agree in every bit.
TEST(MatMul, TargetsAgreeBitForBitOnReleaseInputs) {
  Rng rng(6);
  ThreadPool pool(2);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kFp4}) {
    const Inputs inputs = format == WeightFormat::kBf16 ? Inputs::kBf16 : Inputs::kFp8;
    for (const int64_t m : {1, 2, 3, 4, 5, 20}) {
      const Case c = MatMulCase(rng, {format, 77, 1280}, m, inputs, false);
      const Floats expected = RunCase(c, CpuPortableOps(), pool);
      for (const OpTable* ops : RunnableCpuOps()) {
        const int64_t i = FirstDifference(expected, RunCase(c, *ops, pool));
        EXPECT_EQ(i, -1) << ops->name << " " << Place(c, i);
      }
    }
  }
}

// The comparison above must be able to fail: a product that splits K by the number of rows, as many
// libraries do, gives other bits for a row alone.
void SplitByRows(ThreadPool&, std::span<const MatMulTask> tasks) {
  for (const MatMulTask& task : tasks) {
    Floats w(task.weight.cols);
    for (int64_t n = 0; n < task.weight.rows; ++n) {
      DequantizeRow(task.weight, n, w.data());
      for (int64_t m = 0; m < task.x.rows; ++m) {
        Floats part(task.x.rows > 1 ? 2 : 8);
        for (size_t k = 0; k < w.size(); ++k) part[k % part.size()] += w[k] * task.x.row(m)[k];
        float sum = 0;
        for (float p : part) sum += p;
        task.y.row(m)[n] = sum;
      }
    }
  }
}

TEST(MatMul, AnOrderThatDependsOnTheBatchIsCaught) {
  Rng rng(7);
  ThreadPool pool(1);
  OpTable planted = CpuPortableOps();
  planted.matmul = SplitByRows;
  const Case c = MatMulCase(rng, {WeightFormat::kFp8, 33, 320}, 4, Inputs::kFp8, false);
  ExpectAgrees(c, planted, RunCase(c, ReferenceOps(), pool), RunCase(c, planted, pool));
  EXPECT_NE(FirstBatchDifference(c, planted, pool), -1);
}

}  // namespace
}  // namespace kuruma::kernels

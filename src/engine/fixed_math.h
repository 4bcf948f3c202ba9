// Logarithm and exponential that give the same bits on every build and device: fixed polynomials
// evaluated with IEEE double +, -, * and / alone (contraction is off for the whole build). The
// sampler uses nothing else, so that one seed gives one token everywhere.
// Sources: the identity log(1+f) = f - (f^2/2 - s*(f^2/2 + R)), s = f/(2+f), R the tail of
// 2*atanh(s)/s; argument reduction as in any text on elementary functions (Muller 2016, ch. 11).
#ifndef KURUMA_ENGINE_FIXED_MATH_H_
#define KURUMA_ENGINE_FIXED_MATH_H_

#include <bit>
#include <cstdint>

namespace kuruma::engine {

namespace fixed_math_internal {
// ln 2 in two parts: the first has trailing zeros, so that small integers times it are exact.
inline constexpr double kLn2High = 0x1.62e42fefa38p-1;
inline constexpr double kLn2Low = 0x1.ef35793c7673p-45;
}  // namespace fixed_math_internal

// Natural logarithm of a positive normal number, within 1 ulp of the exact value.
inline double FixedLog(double x) {
  using namespace fixed_math_internal;
  const auto bits = std::bit_cast<uint64_t>(x);
  // Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52)) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double tail = 2.0 / 23;
  tail = tail * z + 2.0 / 21;
  tail = tail * z + 2.0 / 19;
  tail = tail * z + 2.0 / 17;
  tail = tail * z + 2.0 / 15;
  tail = tail * z + 2.0 / 13;
  tail = tail * z + 2.0 / 11;
  tail = tail * z + 2.0 / 9;
  tail = tail * z + 2.0 / 7;
  tail = tail * z + 2.0 / 5;
  tail = tail * z + 2.0 / 3;
  const double half_square = 0.5 * f * f;
  const auto e = static_cast<double>(exponent);
  return e * kLn2High - ((half_square - (s * (half_square + z * tail) + e * kLn2Low)) - f);
}

// e^x within 2 ulps for x in [-700, 700]; below (and for NaN) e^-700, which vanishes in any sum
// that holds a 1.
inline double FixedExp(double x) {
  using namespace fixed_math_internal;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double clamped = x > -700.0 ? x : -700.0;
  const double shifted = clamped * kLog2E + kRound;
  const double k = shifted - kRound;
  const double r = (clamped - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 6227020800;  // Taylor series, 1/13! first
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  const double value = 1.0 + (r + r * r * p);
  const uint64_t scale = std::bit_cast<uint64_t>(shifted) << 52;  // k in the exponent's place
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) + scale);
}

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_FIXED_MATH_H_

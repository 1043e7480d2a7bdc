// Every quantized format, in the order of DType: a new one needs its header, its entry and #include here, and its test.
// The type table, packing, and the linear and embedding kernels are instantiated from these lists; dtype.h, which the
// formats include, takes its enumerators from them.
#ifndef REDLINE_BLOCK_FORMATS
#define REDLINE_BLOCK_FORMATS(F) \
  F(Q4_0)                        \
  F(Q4_1)                        \
  F(Q5_0)                        \
  F(Q5_1) F(Q8_0) F(Q2_K) F(Q3_K) F(Q4_K) F(Q5_K) F(Q6_K) F(IQ4_NL) F(IQ4_XS) F(IQ3_S) F(TQ1_0) F(TQ2_0) F(MXFP4)
// Formats whose scales belong to whole rows.
#define REDLINE_ROW_FORMATS(F) F(W8A8)
#endif

#ifndef REDLINE_FORMAT_NAMES_ONLY
#include "tensor/blocks/iq3_s.h"
#include "tensor/blocks/iq4_nl.h"
#include "tensor/blocks/iq4_xs.h"
#include "tensor/blocks/mxfp4.h"
#include "tensor/blocks/q2_k.h"
#include "tensor/blocks/q3_k.h"
#include "tensor/blocks/q4_0.h"
#include "tensor/blocks/q4_1.h"
#include "tensor/blocks/q4_k.h"
#include "tensor/blocks/q5_0.h"
#include "tensor/blocks/q5_1.h"
#include "tensor/blocks/q5_k.h"
#include "tensor/blocks/q6_k.h"
#include "tensor/blocks/q8_0.h"
#include "tensor/blocks/tq1_0.h"
#include "tensor/blocks/tq2_0.h"
#include "tensor/blocks/w8a8.h"
#endif

/* tests/comm/collective_case.c: see collective_case.h. */
#include "collective_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void case_counts(int pattern, int members, int64_t *counts) {
  for (int i = 0; i < members; i++) {
    int64_t of_pattern[COUNT_PATTERNS] = {
        16, 3 + 5 * i, i == members / 2 ? 0 : 7, i == members - 1 ? 33 : 0, 0, 5000 + 1311 * ((i * 5) % 3)};
    counts[i] = of_pattern[pattern];
  }
}

void case_counts_of_pairs(int pattern, int members, int64_t *counts) {
  int64_t row[members];
  case_counts(pattern, members, row);
  for (int i = 0; i < members; i++)
    for (int j = 0; j < members; j++) counts[i * members + j] = row[(i + j) % members];
}

static int64_t element_bytes(const tsr_collective_options *options) {
  return (int64_t)(options->element_bytes ? options->element_bytes : tsr_dtype_bytes(options->dtype));
}

static bool reduces(const tsr_collective_options *options) {
  return options->kind == TSR_ALL_REDUCE || options->kind == TSR_REDUCE_SCATTER;
}

static int64_t counted_before(const tsr_collective_options *options, int index) {
  int64_t count = 0;
  for (int i = 0; i < index; i++) count += options->counts[i];
  return count;
}

/* ALL_TO_ALL: elements that member `from` sends to those before `to`. */
static int64_t sent_before(const tsr_collective_options *options, int from, int to) {
  int64_t count = 0;
  for (int j = 0; j < to; j++) count += options->counts[from * options->member_count + j];
  return count;
}

static int64_t received_count(const tsr_collective_options *options, int index) {
  int64_t count = 0;
  for (int i = 0; i < options->member_count; i++) count += options->counts[i * options->member_count + index];
  return count;
}

static int64_t in_count(const tsr_collective_options *options, int index) {
  switch (options->kind) {
  case TSR_ALL_GATHER: return options->counts[index];
  case TSR_REDUCE_SCATTER: return counted_before(options, options->member_count);
  case TSR_ALL_TO_ALL: return sent_before(options, index, options->member_count);
  default: return options->counts[0];
  }
}

static int64_t out_count(const tsr_collective_options *options, int index) {
  switch (options->kind) {
  case TSR_ALL_GATHER: return counted_before(options, options->member_count);
  case TSR_REDUCE_SCATTER: return options->counts[index];
  case TSR_ALL_TO_ALL: return received_count(options, index);
  default: return options->counts[0];
  }
}

/* Element `at` of what member `index` contributes. 1e8 + 1 - 1e8 and the like depend on the order in f32;
 * 1e17 + 1 - 1e17 in f64. Sums of up to 85 of the small integers are exact in bf16. */
static double value_of(const collective_case *test, int index, int64_t at) {
  if (!test->ordered) return (double)((at * 5 + index * 3) % 7 - 3);
  double large = test->options.dtype == TSR_F64 ? 1e17 : test->options.wire == TSR_F16 ? 1e3 : 1e8;
  switch ((index + at) % 4) {
  case 0: return large;
  case 1: return 1 + (double)at / 3;
  case 2: return -large;
  default: return 0.1 * (index + 1);
  }
}

/* Whether sums are formed from member 0 upwards, and nothing is rounded but by them. */
static bool is_exact(const collective_case *test) {
  const tsr_collective_options *options = &test->options;
  if (!test->ordered) return true;
  if (options->wire != TSR_F32 && options->dtype == TSR_F32 && options->member_count > 1) return false;
  return !reduces(options) || options->reduction == TSR_MAX || options->algorithm == TSR_ALGORITHM_DIRECT ||
         (options->algorithm == TSR_ALGORITHM_SCATTERED && options->kind == TSR_ALL_REDUCE) ||
         options->member_count <= (options->algorithm == TSR_ALGORITHM_AUTO && !options->hosts ? 16 : 2);
}

static void store(const collective_case *test, char *to, int64_t at, double value) {
  int64_t bytes = element_bytes(&test->options);
  if (test->options.element_bytes)
    memset(to + at * bytes, (int)value & 0xff, (size_t)bytes);
  else if (test->options.dtype == TSR_F64)
    ((double *)to)[at] = value;
  else
    ((float *)to)[at] = (float)value;
}

/* One element, combined from left to right in the element's own type. */
static void store_combined(const collective_case *test, char *to, int64_t at, int64_t element) {
  const tsr_collective_options *options = &test->options;
  float f = (float)value_of(test, 0, element);
  double d = value_of(test, 0, element);
  for (int i = 1; i < options->member_count; i++) {
    double more = value_of(test, i, element);
    if (options->reduction == TSR_SUM) {
      f += (float)more;
      d += more;
    } else {
      f = (float)more > f ? (float)more : f;
      d = more > d ? more : d;
    }
  }
  store(test, to, at, options->dtype == TSR_F64 ? d : f);
}

static void fill_expected(const case_member *member, const collective_case *test) {
  const tsr_collective_options *options = &test->options;
  int64_t at = 0;
  if (options->kind == TSR_ALL_GATHER) {
    for (int i = 0; i < options->member_count; i++)
      for (int64_t k = 0; k < options->counts[i]; k++)
        store(test, member->expected, at++, value_of(test, i, k));
    return;
  }
  if (options->kind == TSR_ALL_TO_ALL) {
    for (int i = 0; i < options->member_count; i++) {
      int64_t before = sent_before(options, i, member->index);
      for (int64_t k = 0; k < options->counts[i * options->member_count + member->index]; k++)
        store(test, member->expected, at++, value_of(test, i, before + k));
    }
    return;
  }
  int64_t first = options->kind == TSR_REDUCE_SCATTER ? counted_before(options, member->index) : 0;
  int64_t count = out_count(options, member->index);
  for (; at < count; at++)
    if (reduces(options))
      store_combined(test, member->expected, at, first + at);
    else
      store(test, member->expected, at, value_of(test, options->root, at));
}

void case_member_fill(case_member *member, const collective_case *test) {
  const tsr_collective_options *options = &test->options;
  memset(member->out, 0x5a, (size_t)member->out_bytes);
  if (options->kind == TSR_BROADCAST && member->index != options->root) return;
  int64_t count = in_count(options, member->index);
  for (int64_t k = 0; k < count; k++) store(test, member->in, k, value_of(test, member->index, k));
}

static bool in_place(const collective_case *test) {
  return test->in_place && test->options.kind != TSR_REDUCE_SCATTER && test->options.kind != TSR_ALL_TO_ALL;
}

static bool allocate(const collective_case *test, case_member *member) {
  const tsr_collective_options *options = &test->options;
  int64_t bytes = element_bytes(options), count = in_count(options, member->index);
  member->out_bytes = out_count(options, member->index) * bytes;
  member->out = calloc(1, (size_t)member->out_bytes + 1);
  member->expected = calloc(1, (size_t)member->out_bytes + 1);
  member->scratch = malloc(tsr_collective_scratch_bytes(options, member->index) + 1);
  if (!in_place(test))
    member->in = calloc(1, (size_t)(count * bytes) + 1);
  else if (options->kind == TSR_ALL_GATHER)
    member->in = member->out + counted_before(options, member->index) * bytes;
  else
    member->in = member->out;
  return member->out && member->expected && member->scratch && member->in;
}

bool case_member_setup(tsr_group *group, const collective_case *test, int index, case_member *member,
                       tsr_error *error) {
  *member = (case_member){.index = index};
  if (!allocate(test, member)) return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory"), false;
  case_member_fill(member, test);
  fill_expected(member, test);
  int in_group = test->options.members ? test->options.members[index] : index;
  return tsr_collective_create(group, in_group, &test->options, member->scratch, &member->collective,
                               error) == TSR_OK;
}

tsr_status case_member_start(case_member *member, const collective_case *test, tsr_error *error) {
  bool unread = test->options.kind == TSR_BROADCAST && member->index != test->options.root;
  return tsr_collective_start(member->collective, unread ? NULL : member->in, member->out, error);
}

static double load(const collective_case *test, const char *from, int64_t at) {
  return test->options.dtype == TSR_F64 ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

/* The first element that is wrong, or -1. */
static int64_t find_wrong(const case_member *member, const collective_case *test) {
  const tsr_collective_options *options = &test->options;
  const int64_t bytes = element_bytes(options), count = member->out_bytes / bytes;
  if (is_exact(test)) {
    for (int64_t at = 0; at < count; at++)
      if (memcmp(member->out + at * bytes, member->expected + at * bytes, (size_t)bytes)) return at;
    return -1;
  }
  const double unit = options->dtype == TSR_F64 ? DBL_EPSILON : FLT_EPSILON;
  const int summands = reduces(options) ? options->member_count : 1;
  const double relative = tsr_collective_wire_error(options) + summands * unit;
  const int64_t first = options->kind == TSR_REDUCE_SCATTER ? counted_before(options, member->index) : 0;
  for (int64_t at = 0; at < count; at++) {
    double exact = 0, magnitude = 0;
    for (int i = 0; i < summands && reduces(options); i++) {
      double value = value_of(test, i, first + at);
      exact = options->reduction == TSR_SUM ? exact + value : i && exact > value ? exact : value;
      magnitude += fabs(value);
    }
    if (!reduces(options)) exact = load(test, member->expected, at), magnitude = fabs(exact);
    if (!(fabs(load(test, member->out, at) - exact) <= relative * magnitude)) return at;
  }
  return -1;
}

const char *case_member_check(const case_member *member, const collective_case *test) {
  static char text[200];
  const tsr_collective_options *options = &test->options;
  int64_t at = find_wrong(member, test);
  if (at < 0) return NULL;
  snprintf(text, sizeof text,
           "%s of %s, %s, wire %s, %d members, index %d, first count %lld: element %lld of %lld differs",
           tsr_collective_kind_name(options->kind), tsr_dtype_name(options->dtype),
           tsr_algorithm_name(options->algorithm), tsr_dtype_name(options->wire), options->member_count,
           member->index, (long long)options->counts[0], (long long)at,
           (long long)(member->out_bytes / element_bytes(options)));
  return text;
}

void case_member_release(case_member *member) {
  tsr_collective_destroy(&member->collective);
  if (member->in < member->out || member->in > member->out + member->out_bytes) free(member->in);
  free(member->out);
  free(member->expected);
  free(member->scratch);
  *member = (case_member){0};
}

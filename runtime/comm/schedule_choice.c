/* comm/schedule_choice.c: the algorithm of a name, and the rule of thumb where nobody measured. */
#include "comm/schedule_choice.h"

#include <string.h>

#include "comm/schedule.h"

static const char *const names[] = {
#define NAME(name, text) [TSR_ALGORITHM_##name] = text,
    TSR_ALGORITHM_LIST(NAME)
#undef NAME
};

const char *tsr_algorithm_name(tsr_algorithm algorithm) {
  return (unsigned)algorithm < TSR_ALGORITHM_COUNT ? names[algorithm] : "?";
}

int tsr_choice_host(const tsr_collective_options *options, int i) {
  if (!options->hosts) return 0;
  return options->hosts[options->members ? options->members[i] : i];
}

/* ---- by name ---- */

static const tsr_schedule_algorithm *const algorithms[] = {tsr_direct_algorithms, tsr_doubling_algorithms,
                                                           tsr_ring_algorithms,   tsr_host_algorithms,
                                                           tsr_tree_algorithms,   tsr_exchange_algorithms};

static const tsr_schedule_algorithm *find(tsr_collective_kind kind, tsr_algorithm name) {
  for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
    for (const tsr_schedule_algorithm *row = algorithms[i]; row->emit; row++)
      if (row->kind == kind && row->name == name) return row;
  return NULL;
}

/* Whether there are several hosts, of which one has several members if they must be `shared`. */
static bool has_hosts(const tsr_collective_options *options, bool shared) {
  const int first = tsr_choice_host(options, 0);
  bool others = false;
  shared = !shared;
  for (int i = 1; options->hosts && i < options->member_count && !(others && shared); i++) {
    const int host = tsr_choice_host(options, i);
    others |= host != first;
    for (int j = i - 1; j >= 0 && !shared; j--) shared = tsr_choice_host(options, j) == host;
  }
  return others && shared;
}

/* ---- alone ---- */

static int one_round(const tsr_schedule *s) {
  (void)s;
  return 1;
}

static void copy_all(round_builder *b, int round) {
  (void)round;
  tsr_round_copy(b, IN, 0, OUT, 0, b->schedule->count, false);
}

static const tsr_schedule_algorithm alone = {
    .name = TSR_ALGORITHM_DIRECT, .members_max = 1, .rounds = one_round, .emit = copy_all};

/* ---- by rule of thumb ---- */

/* The first row that fits. Bytes are those of the result before it is scattered, or after it was gathered.
 * Direct exchange has the fewest messages in a row, scattered the fewest bytes at that; both send a message
 * to everyone, which many members cannot afford. */
static const struct {
  tsr_collective_kind kind;
  int members_max;
  int64_t bytes_max;
  bool needs_hosts;
  tsr_algorithm algorithm;
} rules[] = {
    {TSR_ALL_REDUCE, 16, 16384, false, TSR_ALGORITHM_DIRECT},
    {TSR_ALL_REDUCE, INT32_MAX, 16384, false, TSR_ALGORITHM_DOUBLING},
    {TSR_ALL_REDUCE, INT32_MAX, INT64_MAX, true, TSR_ALGORITHM_HIERARCHICAL},
    {TSR_ALL_REDUCE, 256, INT64_MAX, false, TSR_ALGORITHM_SCATTERED},
    {TSR_ALL_REDUCE, INT32_MAX, 1 << 22, false, TSR_ALGORITHM_TREE},
    {TSR_ALL_REDUCE, INT32_MAX, INT64_MAX, false, TSR_ALGORITHM_RING},
    {TSR_ALL_GATHER, INT32_MAX, INT64_MAX, true, TSR_ALGORITHM_HIERARCHICAL},
    {TSR_ALL_GATHER, 256, INT64_MAX, false, TSR_ALGORITHM_DIRECT},
    {TSR_ALL_GATHER, INT32_MAX, 1 << 22, false, TSR_ALGORITHM_DOUBLING},
    {TSR_ALL_GATHER, INT32_MAX, INT64_MAX, false, TSR_ALGORITHM_RING},
    {TSR_REDUCE_SCATTER, INT32_MAX, INT64_MAX, true, TSR_ALGORITHM_HIERARCHICAL},
    {TSR_REDUCE_SCATTER, 256, INT64_MAX, false, TSR_ALGORITHM_DIRECT},
    {TSR_REDUCE_SCATTER, INT32_MAX, 1 << 22, false, TSR_ALGORITHM_DOUBLING},
    {TSR_REDUCE_SCATTER, INT32_MAX, INT64_MAX, false, TSR_ALGORITHM_RING},
    {TSR_BROADCAST, INT32_MAX, INT64_MAX, true, TSR_ALGORITHM_HIERARCHICAL},
    {TSR_BROADCAST, 8, INT64_MAX, false, TSR_ALGORITHM_DIRECT},
    {TSR_BROADCAST, INT32_MAX, INT64_MAX, false, TSR_ALGORITHM_TREE},
    {TSR_ALL_TO_ALL, 256, INT64_MAX, false, TSR_ALGORITHM_DIRECT},
    {TSR_ALL_TO_ALL, INT32_MAX, INT64_MAX, false, TSR_ALGORITHM_RING},
};

/* Only where a rule asks for it: of all-to-all, there are many counts. */
static int64_t all_bytes(const tsr_collective_options *options) {
  const bool one_count = options->kind == TSR_ALL_REDUCE || options->kind == TSR_BROADCAST;
  int64_t count = 0;
  for (int i = 0; i < (one_count ? 1 : options->member_count); i++) count += options->counts[i];
  return count * tsr_schedule_element_bytes(options);
}

static const tsr_schedule_algorithm *by_rule(const tsr_collective_options *options) {
  const bool hosts = has_hosts(options, true);
  const int64_t bytes = options->kind == TSR_ALL_TO_ALL ? 0 : all_bytes(options);
  size_t i = 0;
  while (rules[i].kind != options->kind || options->member_count > rules[i].members_max ||
         bytes > rules[i].bytes_max || (rules[i].needs_hosts && !hosts))
    i++;
  return find(options->kind, rules[i].algorithm);
}

const tsr_schedule_algorithm *tsr_choice_resolve(const tsr_collective_options *options) {
  if (options->member_count == 1) return &alone;
  const tsr_schedule_algorithm *named = find(options->kind, options->algorithm);
  if (named && options->member_count <= named->members_max &&
      (named->name != TSR_ALGORITHM_HIERARCHICAL || has_hosts(options, false)))
    return named;
  return by_rule(options);
}

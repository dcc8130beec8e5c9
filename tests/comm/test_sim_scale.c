/* tests/comm/test_sim_scale.c: collectives of 1,024 members in virtual time take as long as the alpha-beta
 * model of their algorithm says, and as tsr_collective_seconds says.
 *
 * A message of b bytes takes alpha + b * beta; combining takes no time where formulas are compared, since it
 * may run behind messages. Formulas: Thakur, Rabenseifner and Gropp, Optimization of collective communication
 * operations in MPICH, 2005 (doubling, halving, ring, binomial trees, van de Geijn's broadcast); Patarasuk
 * and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009 (ring). B is all the
 * data: what an all-reduce reduces, what an all-gather ends with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_fixture.h"
#include "comm/collective.h"

enum { ELEMENTS = 16384 /* of all the data */, BYTES = 4 * ELEMENTS, HOST_MEMBERS = 32 };
static const double tolerance = 0.1;

/* ---- formulas ---- */

typedef struct model {
  double n, a, b;              /* members; alpha, beta */
  double network_a, network_b; /* between hosts */
} model;

/* Everything but one part passes through each port. */
static double most(const model *m) {
  return (m->n - 1) / m->n * BYTES * m->b;
}

static double everything_at_once(const model *m) {
  return m->a + (m->n - 1) * BYTES * m->b;
}
static double parts_at_once(const model *m) {
  return m->a + most(m);
}
static double parts_at_once_twice(const model *m) {
  return 2 * parts_at_once(m);
}
/* Those beyond a power of two are folded in before, and told the result afterwards. */
static double doubling(const model *m) {
  bool folds = exp2(floor(log2(m->n))) < m->n;
  return (floor(log2(m->n)) + (folds ? 2 : 0)) * (m->a + BYTES * m->b);
}
static double doubling_parts(const model *m) {
  return log2(m->n) * m->a + most(m);
}
static double ring(const model *m) {
  return (m->n - 1) * m->a + most(m);
}
static double ring_twice(const model *m) {
  return 2 * ring(m);
}
static double ring_broadcast(const model *m) {
  return parts_at_once(m) + ring(m);
}
static double tree(const model *m) {
  return ceil(log2(m->n)) * (m->a + BYTES * m->b);
}
static double tree_twice(const model *m) {
  return 2 * tree(m);
}
static double tree_and_parts(const model *m) {
  return doubling_parts(m) + tree(m);
}
/* Within each host, a ring of one member of each, within each host. */
static double hosts_reduce(const model *m) {
  double hosts = m->n / HOST_MEMBERS;
  return 2 * (m->a + (HOST_MEMBERS - 1) * BYTES * m->b) +
         2 * (hosts - 1) * (m->network_a + BYTES / hosts * m->network_b);
}
static double hosts_broadcast(const model *m) {
  return log2(m->n / HOST_MEMBERS) * (m->network_a + BYTES * m->network_b) + m->a +
         (HOST_MEMBERS - 1) * BYTES * m->b;
}

typedef struct row {
  tsr_collective_kind kind;
  tsr_algorithm algorithm;
  int members;
  double (*seconds)(const model *);
} row;

static const row rows[] = {
    {TSR_ALL_REDUCE, TSR_ALGORITHM_DIRECT, 64, everything_at_once},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_SCATTERED, 64, parts_at_once_twice},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_DOUBLING, 1024, doubling},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_DOUBLING, 1000, doubling},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_RING, 1024, ring_twice},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_TREE, 1024, tree_twice},
    {TSR_ALL_REDUCE, TSR_ALGORITHM_HIERARCHICAL, 1024, hosts_reduce},
    {TSR_ALL_GATHER, TSR_ALGORITHM_DIRECT, 64, parts_at_once},
    {TSR_ALL_GATHER, TSR_ALGORITHM_DOUBLING, 1024, doubling_parts},
    {TSR_ALL_GATHER, TSR_ALGORITHM_RING, 1024, ring},
    {TSR_ALL_GATHER, TSR_ALGORITHM_TREE, 1024, tree_and_parts},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_DIRECT, 64, parts_at_once},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_DOUBLING, 1024, doubling_parts},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_RING, 1024, ring},
    {TSR_REDUCE_SCATTER, TSR_ALGORITHM_TREE, 1024, tree_and_parts},
    {TSR_BROADCAST, TSR_ALGORITHM_DIRECT, 64, everything_at_once},
    {TSR_BROADCAST, TSR_ALGORITHM_SCATTERED, 64, parts_at_once_twice},
    {TSR_BROADCAST, TSR_ALGORITHM_RING, 256, ring_broadcast},
    {TSR_BROADCAST, TSR_ALGORITHM_TREE, 1024, tree},
    {TSR_BROADCAST, TSR_ALGORITHM_HIERARCHICAL, 1024, hosts_broadcast},
};

/* Where latency counts, where bytes do, and where combining does. */
static const tsr_links links_of[] = {
    {.host = {1e-4, 1e10}, .network = {3e-4, 1e10}, .reduce_bandwidth = INFINITY},
    {.host = {1e-6, 1e8}, .network = {5e-6, 2e7}, .reduce_bandwidth = INFINITY},
    {.host = {1e-6, 1e8}, .network = {5e-6, 2e7}, .reduce_bandwidth = 4e7},
};

/* ---- one collective of that many members ---- */

typedef struct crowd {
  tsr_group *group;
  int members;
  int64_t *counts;
  int *hosts;
  tsr_collective **collectives;
  float **in, **out;
  void **scratch;
} crowd;

static bool reduces(const row *r) {
  return r->kind == TSR_ALL_REDUCE || r->kind == TSR_REDUCE_SCATTER;
}

static void *allocate(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (!memory) fail_msg("no memory");
  return memory;
}

/* Counts differ by one where they do not divide: the formulas do not mind. */
static int64_t count_of(const crowd *c, const row *r, int i) {
  if (r->kind == TSR_ALL_REDUCE || r->kind == TSR_BROADCAST) return ELEMENTS;
  return (int64_t)ELEMENTS * (i + 1) / c->members - (int64_t)ELEMENTS * i / c->members;
}

static tsr_collective_options options_of(const crowd *c, const row *r) {
  return (tsr_collective_options){.kind = r->kind,
                                  .counts = c->counts,
                                  .member_count = c->members,
                                  .algorithm = r->algorithm,
                                  .hosts = c->hosts};
}

static void make_member(crowd *c, const row *r, int i) {
  tsr_collective_options options = options_of(c, r);
  c->in[i] = allocate(ELEMENTS, sizeof(float));
  c->out[i] = allocate(ELEMENTS, sizeof(float));
  c->scratch[i] = allocate(tsr_collective_scratch_bytes(&options, i) + 1, 1);
  for (int k = 0; k < ELEMENTS; k++) c->in[i][k] = (float)((k + (reduces(r) ? i : 0)) % 8);
  if (tsr_collective_create(c->group, i, &options, c->scratch[i], &c->collectives[i], &error) != TSR_OK)
    fail_msg("%s", error.message);
}

static crowd make_crowd(const row *r, const tsr_links *links) {
  crowd c = {.members = r->members};
  size_t n = (size_t)r->members;
  c.counts = allocate(n, sizeof *c.counts);
  c.hosts = allocate(n, sizeof *c.hosts);
  c.collectives = allocate(n, sizeof(void *));
  c.in = allocate(n, sizeof(void *));
  c.out = allocate(n, sizeof(void *));
  c.scratch = allocate(n, sizeof(void *));
  for (int i = 0; i < c.members; i++) {
    c.counts[i] = count_of(&c, r, i);
    c.hosts[i] = r->algorithm == TSR_ALGORITHM_HIERARCHICAL ? i / HOST_MEMBERS : 0;
  }
  if (tsr_group_create_sim_with(
          context, c.members, NULL,
          TSR_SIM_OPTIONS(.hosts = c.hosts, .host_latency = links->host.latency,
                          .host_bandwidth = links->host.bandwidth, .network_latency = links->network.latency,
                          .network_bandwidth = links->network.bandwidth,
                          .reduce_bandwidth = isinf(links->reduce_bandwidth) ? 0 : links->reduce_bandwidth),
          &c.group, &error) != TSR_OK)
    fail_msg("%s", error.message);
  for (int i = 0; i < c.members; i++) make_member(&c, r, i);
  return c;
}

static void drop_crowd(crowd *c) {
  for (int i = 0; i < c->members; i++) {
    tsr_collective_destroy(&c->collectives[i]);
    free(c->in[i]);
    free(c->out[i]);
    free(c->scratch[i]);
  }
  tsr_group_destroy(&c->group);
  free(c->counts);
  free(c->hosts);
  free(c->collectives);
  free(c->in);
  free(c->out);
  free(c->scratch);
}

/* Element k of the whole: exact in f32. */
static float expected_at(const crowd *c, const row *r, int k) {
  float sum = 0;
  if (r->kind == TSR_BROADCAST) return (float)(k % 8);
  for (int i = 0; i < c->members; i++) sum += (float)((k + i) % 8);
  return sum;
}

static void check_results(const crowd *c, const row *r) {
  int64_t first = 0;
  float by_phase[8] = {0};
  for (int k = 0; k < 8; k++) by_phase[k] = expected_at(c, r, k);
  for (int i = 0; i < c->members; first += c->counts[i++])
    for (int64_t k = 0; k < (r->kind == TSR_REDUCE_SCATTER ? c->counts[i] : ELEMENTS); k++) {
      int64_t at = r->kind == TSR_REDUCE_SCATTER ? first + k : k;
      if (r->kind != TSR_ALL_GATHER && c->out[i][k] != by_phase[at % 8])
        fail_msg("member %d: element %lld is %g, expected %g", i, (long long)k, c->out[i][k],
                 by_phase[at % 8]);
    }
  first = 0;
  for (int j = 0; r->kind == TSR_ALL_GATHER && j < c->members; first += c->counts[j++])
    for (int i = 0; i < c->members; i++)
      assert_memory_equal(c->out[i] + first, c->in[j], (size_t)c->counts[j] * sizeof(float));
}

/* Virtual seconds until the last member has ended. */
static double run(const crowd *c) {
  double last = 0;
  for (int i = 0; i < c->members; i++)
    if (tsr_collective_start(c->collectives[i], c->in[i], c->out[i], &error) != TSR_OK)
      fail_msg("%s", error.message);
  if (tsr_collective_wait_all(c->group, c->collectives, (size_t)c->members, &error) != TSR_OK)
    fail_msg("%s", error.message);
  for (int i = 0; i < c->members; i++) last = fmax(last, tsr_group_now_of(c->group, i));
  return last;
}

static void compare(const row *r, const char *who, double took, double expected) {
  if (fabs(took - expected) <= tolerance * expected) return;
  fail_msg("%s of %d members, %s, took %.9g s in virtual time; %s says %.9g s",
           tsr_collective_kind_name(r->kind), r->members, tsr_algorithm_name(r->algorithm), took, who,
           expected);
}

static void run_row(const row *r, const tsr_links *links) {
  crowd c = make_crowd(r, links);
  tsr_collective_options options = options_of(&c, r);
  model m = {.n = r->members,
             .a = links->host.latency,
             .b = 1 / links->host.bandwidth,
             .network_a = links->network.latency,
             .network_b = 1 / links->network.bandwidth};
  double took = run(&c), told = tsr_collective_seconds(&options, links);
  check_results(&c, r);
  drop_crowd(&c);
  if (isinf(links->reduce_bandwidth)) compare(r, "the formula", took, r->seconds(&m));
  compare(r, "tsr_collective_seconds", took, told);
}

static void time_follows_the_model(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t k = 0; k < sizeof links_of / sizeof *links_of; k++)
      if (reduces(&rows[i]) || isinf(links_of[k].reduce_bandwidth)) run_row(&rows[i], &links_of[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(time_follows_the_model),
  };
  return cmocka_run_group_tests(tests, make_context, drop_context);
}

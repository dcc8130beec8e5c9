/* test_distributed.c: distributed products on the host device over sim members: random distributions of every
 * kind, integers bit for bit, what is moved against the least that can be, and every mistake a caller can
 * make. */
#include "distributed_support.h"

typedef struct problem {
  int64_t m, n, k;
  bool ta, tb;
  double alpha, beta;
  tsr_dtype dtype;
  int64_t message_bytes;
  bool estimated; /* no cluster is given */
} problem;

typedef struct product {
  exec_rig rig;
  problem of;
  spread_matrix a, b, c;
  double *expected;
} product;

/* Members of unequal speeds, links of any: so that the ways to split all win at times. */
static void open_members(product *p, int members) {
  static const double latencies[] = {1e-9, 1e-6, 1e-4}, bandwidths[] = {1e12, 1e9, 1e7};
  exec_setup setup = {.members = members};
  for (int i = 0; i < members; i++) setup.speeds[i] = (double)exec_between(1, 3);
  exec_open(&p->rig, &setup);
  tsr_link *link = &p->rig.cluster->links.host;
  link->latency = latencies[exec_between(0, 2)];
  link->bandwidth = bandwidths[exec_between(0, 2)];
}

static void expect_product(product *p) {
  const problem *of = &p->of;
  p->expected = calloc((size_t)(of->m * of->n) + 1, sizeof *p->expected);
  for (int64_t i = 0; i < of->m; i++)
    for (int64_t j = 0; j < of->n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < of->k; l++)
        sum += p->a.whole[of->ta ? l * of->m + i : i * of->k + l] *
               p->b.whole[of->tb ? j * of->k + l : l * of->n + j];
      p->expected[i * of->n + j] = of->alpha * sum + of->beta * p->c.whole[i * of->n + j];
    }
}

static void open_product(product *p, int members, const problem *of, spread a, spread b, spread c) {
  *p = (product){.of = *of};
  open_members(p, members);
  spread_init(&p->a, of->ta ? of->k : of->m, of->ta ? of->m : of->k, of->dtype, members, a, 3);
  spread_init(&p->b, of->tb ? of->n : of->k, of->tb ? of->k : of->n, of->dtype, members, b, 3);
  spread_init(&p->c, of->m, of->n, of->dtype, members, c, 3);
  expect_product(p);
}

static void close_product(product *p) {
  spread_finish(&p->a);
  spread_finish(&p->b);
  spread_finish(&p->c);
  free(p->expected);
  exec_close(&p->rig);
}

static tsr_distributed_gemm_options options_of(const product *p) {
  tsr_distributed_gemm_options options;
  tsr_distributed_gemm_options_init(&options);
  options.dtype = p->of.dtype;
  options.transpose_a = p->of.ta;
  options.transpose_b = p->of.tb;
  options.message_bytes = p->of.message_bytes;
  options.cluster = p->of.estimated ? NULL : p->rig.cluster;
  return options;
}

static tsr_status create(product *p, tsr_distributed_gemm **out) {
  tsr_distributed_gemm_options options = options_of(p);
  return tsr_distributed_gemm_create(p->rig.group, p->rig.devices, (size_t)p->rig.setup.members, p->of.m,
                                     p->of.n, p->of.k, p->of.alpha, p->of.beta, p->a.parts, p->b.parts,
                                     p->c.parts, &options, out, &exec_error);
}

static tsr_status run(product *p, tsr_distributed_gemm *gemm) {
  return tsr_distributed_gemm_run(gemm, p->a.parts, p->b.parts, p->c.parts, &exec_error);
}

static uint64_t sent_by_all(const product *p) {
  uint64_t bytes = 0;
  for (int i = 0; i < p->rig.setup.members; i++) bytes += tsr_group_bytes_sent(p->rig.group, i);
  return bytes;
}

/* What the plan's collectives and the run's agreements send beside. */
static uint64_t sent_beside(const product *p, const tsr_plan *plan) {
  enum { AGREEMENTS = 4 };
  uint64_t bytes = 0, before = sent_by_all(p);
  for (int i = 0; i < AGREEMENTS; i++) exec_ok(tsr_group_agree(p->rig.group, TSR_OK, NULL, &exec_error));
  bytes = sent_by_all(p) - before;
  for (int i = 0; plan && i < p->rig.setup.members; i++) bytes += plan->members[i].sent_bytes;
  return bytes;
}

static void expect_least_moved(const product *p, const tsr_distributed_gemm *gemm, uint64_t sent) {
  const tsr_plan *plan = tsr_distributed_gemm_plan(gemm);
  const spread_matrix *matrices[] = {&p->a, &p->b, &p->c};
  int64_t least = 0;
  uint64_t said = 0;
  tsr_value value;
  for (int i = 0; i < 4; i++) {
    if (i == TSR_OPERAND_C && p->of.beta == 0) continue;
    int operand = i == 3 ? TSR_OPERAND_C : i;
    exec_ok(tsr_distributed_value(plan, operand, i == 3, &value, &exec_error));
    least += spread_least_moved(matrices[operand], plan, value, i == 3);
  }
  for (int i = 0; i < p->rig.setup.members; i++) said += tsr_distributed_gemm_bytes_moved(gemm, i);
  assert_int_equal(said, (uint64_t)least * tsr_dtype_bytes(p->of.dtype));
  assert_int_equal(sent - sent_beside(p, plan), said);
}

/* How the plan splits the product: 0 = not, 1 = along m, 2 = along n, 3 = along k. */
static int split_of(const tsr_plan *plan) {
  const tsr_node *node = &plan->graph->nodes[0];
  tsr_rule rules[TSR_RULES_MAX];
  tsr_operator_rules_of(node->op)->rules(plan->graph, node, rules);
  if (plan->decision.active_count == 1) return 0;
  tsr_place out = rules[plan->decision.rules[0]].out;
  return out == TSR_PLACE_REPLICATE ? 0 : out == TSR_PLACE_SUM ? 3 : 1 + out;
}

/* Creates, runs twice (the second time in the same memory), compares. */
static int run_exact(product *p) {
  tsr_distributed_gemm *gemm = NULL;
  if (p->of.beta == 0) spread_poison(&p->c);
  exec_ok(create(p, &gemm));
  const tsr_plan *plan = tsr_distributed_gemm_plan(gemm);
  int split = plan ? split_of(plan) : 0;
  uint64_t before = sent_by_all(p);
  exec_ok(run(p, gemm));
  uint64_t sent = sent_by_all(p) - before;
  spread_expect(&p->c, p->expected, NULL, "C");
  spread_expect(&p->a, p->a.whole, NULL, "A");
  spread_expect(&p->b, p->b.whole, NULL, "B");
  if (plan) expect_least_moved(p, gemm, sent);
  if (p->of.beta == 0) {
    exec_ok(run(p, gemm));
    spread_expect(&p->c, p->expected, NULL, "C again");
  }
  tsr_distributed_gemm_destroy(&gemm);
  return split;
}

static problem random_problem(int turn) {
  static const double alphas[] = {1, -2, 0, 1, 3}, betas[] = {0, 1, -3};
  static const int64_t sizes[] = {1, 5, 16, 33, 70};
  static const int64_t messages[] = {64, 0, 264};
  return (problem){.m = sizes[exec_between(0, 4)],
                   .n = sizes[exec_between(0, 4)],
                   .k = exec_between(0, 3) ? sizes[exec_between(0, 4)] : 300,
                   .ta = turn & 1,
                   .tb = turn & 2,
                   .alpha = alphas[turn % 5],
                   .beta = betas[turn % 3],
                   .dtype = turn % 7 < 4 ? TSR_F32 : TSR_F64,
                   .message_bytes = messages[exec_between(0, 2)],
                   .estimated = turn % 11 == 0};
}

/* All spreads of A, B, C against one another by chance, 1 to 7 members. */
static void any_distribution(void **state) {
  (void)state;
  enum { TURNS = 350 };
  int splits[4] = {0};
  for (int turn = 0; turn < TURNS; turn++) {
    exec_seed((uint64_t)turn);
    product p;
    problem of = random_problem(turn);
    int members = 1 + turn % 7;
    open_product(&p, members, &of, (spread)exec_between(0, SPREADS - 1), (spread)exec_between(0, SPREADS - 1),
                 (spread)exec_between(0, SPREADS_OF_C - 1));
    splits[run_exact(&p)]++;
    close_product(&p);
  }
  print_message("not split %d, along m %d, n %d, k %d\n", splits[0], splits[1], splits[2], splits[3]);
  for (int i = 0; i < 4; i++) assert_in_range(splits[i], 5, TURNS - 1);
}

/* Each spread of C with every transpose, type and beta. */
static void every_spread(void **state) {
  (void)state;
  for (int how = 0; how < SPREADS; how++)
    for (int turn = 0; turn < 16; turn++) {
      exec_seed((uint64_t)(1000 + how * 16 + turn));
      product p;
      problem of = {.m = 29, .n = 31, .k = 37, .ta = turn & 1, .tb = turn & 2, .alpha = 2, .beta = turn & 4};
      of.dtype = turn & 8 ? TSR_F64 : TSR_F32;
      of.message_bytes = 64;
      open_product(&p, 4, &of, (spread)how, (spread)how, (spread)(how % SPREADS_OF_C));
      run_exact(&p);
      close_product(&p);
    }
}

/* An extent of 0, and alpha = 0: C = beta C, without a plan. */
static void nothing_to_multiply(void **state) {
  (void)state;
  static const int64_t extents[][3] = {{0, 5, 5}, {5, 0, 5}, {5, 5, 0}, {0, 0, 0}, {7, 9, 3}};
  for (int i = 0; i < 5; i++)
    for (int beta = 0; beta < 2; beta++) {
      product p;
      problem of = {.m = extents[i][0], .n = extents[i][1], .k = extents[i][2], .beta = beta * 2};
      of.alpha = i == 4 ? 0 : 1;
      open_product(&p, 3, &of, SPREAD_GRID, SPREAD_ROWS, SPREAD_COLS);
      tsr_distributed_gemm *gemm;
      exec_ok(create(&p, &gemm));
      assert_null(tsr_distributed_gemm_plan(gemm));
      assert_int_equal(tsr_distributed_gemm_bytes_moved(gemm, 0), 0);
      tsr_distributed_gemm_destroy(&gemm);
      run_exact(&p);
      close_product(&p);
    }
}

/* Blocks that lie as a plan can use them are not moved, and need no memory. */
static void where_they_lie(void **state) {
  (void)state;
  static const spread cases[][3] = {{SPREAD_ROWS, SPREAD_EVERYWHERE, SPREAD_ROWS},
                                    {SPREAD_EVERYWHERE, SPREAD_COLS, SPREAD_COLS},
                                    {SPREAD_COLS, SPREAD_ROWS, SPREAD_ROWS},
                                    {SPREAD_COLS, SPREAD_ROWS, SPREAD_COLS}};
  for (int i = 0; i < 6; i++) {
    product p;
    problem of = {.m = 60, .n = 56, .k = 400, .alpha = 1, .beta = i / 4, .dtype = TSR_F32};
    exec_seed((uint64_t)i);
    open_product(&p, 4, &of, cases[i % 4][0], cases[i % 4][1], cases[i % 4][2]);
    p.rig.cluster->links.host = (tsr_link){1e-9, 1e8};
    for (int j = 0; j < 4; j++) p.rig.cluster->members[j] = p.rig.cluster->members[0];
    tsr_distributed_gemm *gemm;
    exec_ok(create(&p, &gemm));
    for (int j = 0; j < 4; j++) {
      assert_int_equal(tsr_distributed_gemm_bytes_moved(gemm, j), 0);
      for (int q = 0; q < gemm->passage_count; q++) assert_true(gemm->passages[q].direct[j] >= 0);
    }
    tsr_distributed_gemm_destroy(&gemm);
    run_exact(&p);
    close_product(&p);
  }
}

/* Real numbers: within 8 sqrt(k) eps |A| |B|. */
static void rounding(void **state) {
  (void)state;
  for (int turn = 0; turn < 8; turn++) {
    exec_seed((uint64_t)turn);
    product p;
    problem of = {.m = 45, .n = 50, .k = 400, .ta = turn & 1, .tb = turn & 2, .alpha = 1, .beta = 0.5};
    of.dtype = turn & 4 ? TSR_F64 : TSR_F32;
    open_product(&p, 3, &of, SPREAD_GRID, SPREAD_CYCLIC, SPREAD_PIECES);
    of.alpha = p.of.alpha = 0.1; /* inexact in both types */
    double *bound = calloc((size_t)(of.m * of.n), sizeof *bound);
    double scale = 8 * sqrt((double)of.k) * tsr_dtype_epsilon(of.dtype) * 9 * (double)of.k * 0.1;
    for (int64_t i = 0; i < of.m * of.n; i++) {
      double c = p.c.whole[i];
      p.expected[i] = 0.1 * (p.expected[i] - 0.5 * c) + 0.5 * c;
      bound[i] = scale;
    }
    tsr_distributed_gemm *gemm;
    exec_ok(create(&p, &gemm));
    exec_ok(run(&p, gemm));
    spread_expect(&p.c, p.expected, bound, "C");
    tsr_distributed_gemm_destroy(&gemm);
    free(bound);
    close_product(&p);
  }
}

/* Blocks that moved to other memory, and one call for all. */
static void other_memory(void **state) {
  (void)state;
  product p;
  problem of = {.m = 40, .n = 30, .k = 20, .alpha = 1, .dtype = TSR_F64};
  open_product(&p, 3, &of, SPREAD_GRID, SPREAD_PIECES, SPREAD_ROWS);
  tsr_distributed_gemm *gemm;
  exec_ok(create(&p, &gemm));
  exec_ok(run(&p, gemm));
  tsr_block *block = (tsr_block *)&p.c.parts[1].blocks[0];
  void *old = block->data;
  double *elsewhere = calloc((size_t)(2 * (block->rows + 9) * (block->cols + 9)), sizeof *elsewhere);
  block->data = elsewhere;
  exec_ok(run(&p, gemm));
  assert_true(elsewhere[0] == p.expected[block->row * p.c.cols]);
  block->data = old;
  tsr_distributed_gemm_destroy(&gemm);
  spread_poison(&p.c);
  tsr_distributed_gemm_options options = options_of(&p);
  exec_ok(tsr_distributed_gemm_once(p.rig.group, p.rig.devices, 3, of.m, of.n, of.k, 1, 0, p.a.parts,
                                    p.b.parts, p.c.parts, &options, NULL));
  spread_expect(&p.c, p.expected, NULL, "C");
  free(elsewhere);
  close_product(&p);
}

/* ---- block-cyclic arrays ---- */

/* Against the definition: element (i, j) belongs to block (i / mb, j / nb), whose place in the grid follows;
 * its place in the local array counts the member's earlier blocks (ScaLAPACK's INDXG2P, INDXG2L). */
static void block_cyclic(void **state) {
  (void)state;
  for (int turn = 0; turn < 300; turn++) {
    exec_seed((uint64_t)turn);
    tsr_block_cyclic layout = {.rows = exec_between(0, 40),
                               .cols = exec_between(0, 40),
                               .block_rows = exec_between(1, 12),
                               .block_cols = exec_between(1, 12),
                               .grid_rows = (int)exec_between(1, 4),
                               .grid_cols = (int)exec_between(1, 4),
                               .row_major = exec_between(0, 1)};
    layout.first_row = (int)exec_between(0, layout.grid_rows - 1);
    layout.first_col = (int)exec_between(0, layout.grid_cols - 1);
    layout.ld = exec_between(0, 1) * 57;
    int64_t seen = 0;
    for (int member = 0; member < layout.grid_rows * layout.grid_cols; member++) {
      layout.grid_row = member / layout.grid_cols;
      layout.grid_col = member % layout.grid_cols;
      tsr_block blocks[2000];
      double local[64 * 64];
      int64_t count;
      exec_ok(tsr_block_cyclic_blocks(&layout, TSR_F64, local, blocks, 2000, &count, &exec_error));
      for (int64_t b = 0; b < count; b++)
        for (int64_t i = blocks[b].row; i < blocks[b].row + blocks[b].rows; i++)
          for (int64_t j = blocks[b].col; j < blocks[b].col + blocks[b].cols; j++, seen++) {
            int64_t mb = layout.block_rows, nb = layout.block_cols, p = layout.grid_rows,
                    q = layout.grid_cols;
            assert_int_equal((layout.first_row + i / mb) % p, layout.grid_row);
            assert_int_equal((layout.first_col + j / nb) % q, layout.grid_col);
            int64_t li = mb * (i / (mb * p)) + i % mb, lj = nb * (j / (nb * q)) + j % nb;
            int64_t ld = blocks[b].ld, di = i - blocks[b].row, dj = j - blocks[b].col;
            const double *at = (double *)blocks[b].data + (layout.row_major ? di * ld + dj : dj * ld + di);
            assert_int_equal(at - local, layout.row_major ? li * ld + lj : lj * ld + li);
          }
    }
    assert_int_equal(seen, layout.rows * layout.cols);
  }
}

static void bad_descriptors(void **state) {
  (void)state;
  const tsr_block_cyclic good = {
      .rows = 10, .cols = 10, .block_rows = 2, .block_cols = 2, .grid_rows = 2, .grid_cols = 2};
  int64_t count;
  tsr_block_cyclic bad = good;
  bad.block_cols = 0;
  exec_refused(tsr_block_cyclic_blocks(&bad, TSR_F32, NULL, NULL, 0, &count, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "blocks of 2 x 0");
  bad = good;
  bad.grid_row = 2;
  exec_refused(tsr_block_cyclic_blocks(&bad, TSR_F32, NULL, NULL, 0, &count, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "place (2, 0)");
  bad = good;
  bad.ld = 5;
  exec_refused(tsr_block_cyclic_blocks(&bad, TSR_F32, NULL, NULL, 0, &count, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "ld is 5, this member's local array has 6 rows");
}

/* Extents and bytes beyond 32 bits are counted; nothing is allocated for them. */
static void large_numbers(void **state) {
  (void)state;
  const int64_t rows = (int64_t)1 << 36, cols = (int64_t)1 << 20;
  tsr_owned by_rows[3], by_cols[3];
  tsr_group *group;
  exec_ok(tsr_group_create_sim(exec_context, 3, NULL, &group, &exec_error));
  for (int i = 0; i < 3; i++) {
    tsr_block r = tsr_block_of_rows(rows, cols, 3, i), c = tsr_block_of_cols(rows, cols, 3, i);
    by_rows[i] = (tsr_owned){.at = {r.row, r.col, r.rows, r.cols}, .member = i};
    by_cols[i] = (tsr_owned){.at = {c.row, c.col, c.rows, c.cols}, .member = i};
  }
  for (int i = 0; i < 3; i++) {
    const tsr_redistribution_options options = {.element_bytes = 8,
                                                .message_bytes = 1024,
                                                .source = by_rows,
                                                .source_count = 3,
                                                .target = by_cols,
                                                .target_count = 3};
    tsr_redistribution *moves;
    exec_ok(tsr_redistribution_create(group, i, &options, &moves, &exec_error));
    uint64_t others = (uint64_t)(cols - by_cols[i].at.cols);
    assert_true(tsr_redistribution_sent_bytes(moves) == 8 * (uint64_t)by_rows[i].at.rows * others);
    assert_int_equal(tsr_redistribution_scratch_bytes(moves), 4096);
    tsr_redistribution_destroy(&moves);
  }
  tsr_group_destroy(&group);
  tsr_block_cyclic layout = {.rows = rows, .cols = 1, .block_rows = rows / 4 + 1, .block_cols = 1};
  layout.grid_rows = 2, layout.grid_cols = 1, layout.grid_row = 1;
  tsr_block blocks[2];
  int64_t count;
  exec_ok(tsr_block_cyclic_blocks(&layout, TSR_F64, NULL, blocks, 2, &count, &exec_error));
  assert_int_equal(count, 2);
  assert_true(blocks[1].row == 3 * (rows / 4 + 1) && blocks[1].rows == rows - blocks[1].row);
}

/* ---- mistakes ---- */

static const problem small_problem = {.m = 12, .n = 10, .k = 8, .alpha = 1, .beta = 1, .dtype = TSR_F32};

static void open_small(product *p) {
  exec_seed(3);
  open_product(p, 3, &small_problem, SPREAD_ROWS, SPREAD_COLS, SPREAD_ROWS);
}

static void refused(product *p, const char *words) {
  tsr_distributed_gemm *gemm = NULL;
  exec_refused(create(p, &gemm), TSR_ERROR_INVALID_ARGUMENT, words);
  assert_null(gemm);
}

static tsr_block *block_of(spread_matrix *m, int member) {
  return (tsr_block *)&m->parts[member].blocks[0];
}

/* Each changes one number, is refused, and changes it back. */
static void wrong_blocks(void **state) {
  (void)state;
  product p;
  open_small(&p);
  tsr_block good, *a1 = block_of(&p.a, 1), *c1 = block_of(&p.c, 1), *b2 = block_of(&p.b, 2);

  good = *a1;
  a1->rows = 9;
  refused(&p, "rank 1: block 0 of A begins at row 4 and has 9 of them, A as it is stored has 12");
  a1->rows = -1;
  refused(&p, "rank 1: block 0 of A begins at row 4 and has -1 of them");
  a1->rows = good.rows;
  a1->row = INT64_MAX;
  refused(&p, "rank 1: block 0 of A begins at row 9223372036854775807");
  *a1 = good;
  a1->cols = 9;
  refused(&p, "rank 1: block 0 of A begins at column 0 and has 9 of them, A as it is stored has 8");
  *a1 = good;
  a1->ld = 3;
  refused(&p, "rank 1: ld of block 0 of A is 3");
  a1->ld = INT64_MAX / 2;
  refused(&p, "does not fit 63 bits");
  *a1 = good;
  a1->rows--;
  refused(&p, "nobody has element (7, 0) of A, which is 12 x 8");
  *a1 = good;
  a1->row--;
  refused(&p, "both hold element (3, 0): blocks of two ranks are the very same, or disjoint");
  *a1 = good;

  good = *c1;
  c1->row = 0;
  refused(&p, "block 0 of C and block 0 of rank 0 both hold element (0, 0): blocks must be disjoint");
  *c1 = good;
  good = *b2;
  b2->cols--;
  refused(&p, "nobody has element (0, 9) of B, which is 8 x 10");
  *b2 = good;
  p.b.parts[2].block_count = -2;
  refused(&p, "rank 2: -2 blocks of B");
  p.b.parts[2].block_count = 1;

  tsr_distributed_gemm *gemm = NULL;
  exec_ok(create(&p, &gemm)); /* all is well again */
  a1 = block_of(&p.a, 1);
  good = *a1;
  a1->row++;
  exec_refused(run(&p, gemm), TSR_ERROR_INVALID_ARGUMENT, "rank 1: block 0 of A is not what it was");
  *a1 = good;
  a1->data = NULL;
  exec_refused(run(&p, gemm), TSR_ERROR_INVALID_ARGUMENT, "rank 1: data of block 0 of A, 4 x 8, is ");
  a1->data = (char *)good.data + 1;
  exec_refused(run(&p, gemm), TSR_ERROR_INVALID_ARGUMENT, "aligned to 4 bytes");
  *a1 = good;
  spread_expect(&p.c, p.c.whole, NULL, "C after refusals");
  exec_ok(run(&p, gemm));
  spread_expect(&p.c, p.expected, NULL, "C");
  tsr_distributed_gemm_destroy(&gemm);
  close_product(&p);
}

static void wrong_numbers(void **state) {
  (void)state;
  product p;
  open_small(&p);
  p.of.m = -1;
  refused(&p, "m = -1");
  p.of.m = INT64_MAX / 4;
  refused(&p, "does not fit 63 bits");
  p.of = small_problem;
  p.of.alpha = (double)NAN;
  refused(&p, "alpha is nan");
  p.of = small_problem;
  p.of.dtype = TSR_BF16;
  refused(&p, "dtype is bf16");
  p.of = small_problem;
  p.of.message_bytes = 3;
  refused(&p, "message_bytes is 3");
  p.of = small_problem;
  tsr_distributed_gemm *gemm = NULL;
  tsr_distributed_gemm_options options = options_of(&p);
  options.struct_size = 0;
  exec_refused(tsr_distributed_gemm_create(p.rig.group, p.rig.devices, 3, 12, 10, 8, 1, 0, p.a.parts,
                                           p.b.parts, p.c.parts, &options, &gemm, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "struct_size is 0");
  options = options_of(&p);
  exec_refused(tsr_distributed_gemm_create(p.rig.group, p.rig.devices, 2, 12, 10, 8, 1, 0, p.a.parts,
                                           p.b.parts, p.c.parts, &options, &gemm, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "2 devices given, this process drives 3");
  exec_refused(tsr_distributed_gemm_create(p.rig.group, p.rig.devices, 3, 12, 10, 8, 1, 0, p.a.parts, NULL,
                                           p.c.parts, &options, &gemm, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "the parts of B are NULL");
  exec_refused(tsr_distributed_gemm_create(NULL, p.rig.devices, 3, 12, 10, 8, 1, 0, p.a.parts, p.b.parts,
                                           p.c.parts, &options, &gemm, &exec_error),
               TSR_ERROR_INVALID_ARGUMENT, "group is NULL");
  close_product(&p);
}

/* Holes and overlaps among many blocks are found, wherever they are. */
static void planted_mistakes(void **state) {
  (void)state;
  for (int turn = 0; turn < 200; turn++) {
    exec_seed((uint64_t)turn);
    product p;
    problem of = {.m = 30, .n = 30, .k = 30, .alpha = 1, .dtype = TSR_F32};
    open_product(&p, 5, &of, SPREAD_CYCLIC, turn % 2 ? SPREAD_PIECES : SPREAD_REPLICAS, SPREAD_CYCLIC);
    spread_matrix *m = turn % 3 == 0 ? &p.a : turn % 3 == 1 ? &p.b : &p.c;
    int member = (int)exec_between(0, 4);
    tsr_distributed_gemm *gemm = NULL;
    if (m->parts[member].block_count) {
      tsr_block *block =
          (tsr_block *)&m->parts[member].blocks[exec_between(0, m->parts[member].block_count - 1)];
      bool grows = turn % 2 && block->row > 0;
      bool vanishes = !grows && block->rows == 1; /* a replica may */
      if (block->rows && block->cols && !vanishes) {
        if (grows) block->row--;
        block->ld++; /* which is not what is tested */
        block->rows += grows ? 1 : -1;
        exec_refused(create(&p, &gemm), TSR_ERROR_INVALID_ARGUMENT, "element (");
      }
    }
    close_product(&p);
  }
}

/* Any allocation may fail: one error, and nothing is left behind. */
static void memory_runs_out(void **state) {
  (void)state;
  product p;
  open_small(&p);
  tsr_distributed_gemm *gemm = NULL;
  tsr_status status = TSR_ERROR_OUT_OF_MEMORY;
  for (int after = 0; status != TSR_OK; after += after < 200 ? 1 : 7) {
    tsr_memory_fail_after(after);
    status = create(&p, &gemm);
    tsr_memory_fail_after(-1);
    /* Of a document that does not fit memory, its writer knows only that it could not be written. */
    if (status != TSR_OK && status != TSR_ERROR_OUT_OF_MEMORY)
      exec_refused(status, TSR_ERROR_IO, "the plan could not be written");
  }
  exec_ok(run(&p, gemm));
  spread_expect(&p.c, p.expected, NULL, "C");
  tsr_distributed_gemm_destroy(&gemm);
  close_product(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_distribution),
      cmocka_unit_test(every_spread),
      cmocka_unit_test(nothing_to_multiply),
      cmocka_unit_test(where_they_lie),
      cmocka_unit_test(rounding),
      cmocka_unit_test(other_memory),
      cmocka_unit_test(block_cyclic),
      cmocka_unit_test(bad_descriptors),
      cmocka_unit_test(large_numbers),
      cmocka_unit_test(wrong_blocks),
      cmocka_unit_test(wrong_numbers),
      cmocka_unit_test(planted_mistakes),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, exec_begin, exec_end);
}

/* Room runtime/plan: variable elimination against brute force over every assignment, with forbidden entries,
 * and under a limit of the width. */
#include "plan_support.h"

#include "plan/factors.h"

enum { VARIABLES = 7, DOMAIN = 5, TABLES = 12, ARITY = 4, CASES = 1500 };

typedef struct table {
  int arity, variables[ARITY];
  int64_t cost[DOMAIN * DOMAIN * DOMAIN * DOMAIN];
} table;

typedef struct problem {
  int variable_count, domains[VARIABLES], table_count;
  table tables[TABLES];
} problem;

static void make_table(problem *p, table *t, int forbidden) {
  size_t size = 1;
  t->arity = 0;
  int wanted = (int)plan_between(1, p->variable_count < ARITY ? p->variable_count : ARITY);
  while (t->arity < wanted) {
    int variable = (int)plan_between(0, p->variable_count - 1), i = 0;
    while (i < t->arity && t->variables[i] != variable) i++;
    if (i < t->arity) continue;
    t->variables[t->arity++] = variable;
    size *= (size_t)p->domains[variable];
  }
  for (size_t i = 0; i < size; i++)
    t->cost[i] = plan_chance(forbidden) ? TSR_COST_FORBIDDEN : plan_between(0, plan_chance(50) ? 3 : 100000);
}

static void make_problem(problem *p, int forbidden) {
  p->variable_count = (int)plan_between(1, VARIABLES);
  for (int v = 0; v < p->variable_count; v++)
    p->domains[v] = (int)plan_between(1, p->variable_count > 5 ? 4 : DOMAIN);
  p->table_count = (int)plan_between(0, TABLES);
  for (int i = 0; i < p->table_count; i++) make_table(p, &p->tables[i], forbidden);
}

static int64_t cost_of(const problem *p, const int *states) {
  int64_t sum = 0;
  for (int i = 0; i < p->table_count; i++) {
    const table *t = &p->tables[i];
    size_t index = 0;
    for (int j = 0; j < t->arity; j++)
      index = index * (size_t)p->domains[t->variables[j]] + (size_t)states[t->variables[j]];
    if (t->cost[index] >= TSR_COST_FORBIDDEN) return TSR_COST_FORBIDDEN;
    sum += t->cost[index];
  }
  return sum;
}

static int64_t brute_force(const problem *p) {
  int states[VARIABLES] = {0}, v;
  int64_t best = TSR_COST_FORBIDDEN;
  do {
    int64_t own = cost_of(p, states);
    if (own < best) best = own;
    for (v = p->variable_count - 1; v >= 0 && ++states[v] == p->domains[v]; v--) states[v] = 0;
  } while (v >= 0);
  return best;
}

static void solve(const problem *p, size_t limit, int *states, int64_t *cost, bool *exact) {
  tsr_factors *factors = tsr_factors_create((size_t)p->variable_count, p->domains);
  assert_non_null(factors);
  for (int i = 0; i < p->table_count; i++)
    assert_true(tsr_factors_add(factors, p->tables[i].arity, p->tables[i].variables, p->tables[i].cost));
  assert_true(tsr_factors_solve(factors, limit, states, cost, exact));
  tsr_factors_destroy(&factors);
  for (int v = 0; v < p->variable_count; v++) assert_in_range(states[v], 0, p->domains[v] - 1);
}

static void equal_to_brute_force(void **state) {
  (void)state;
  static problem p;
  int forbidden = 0;
  plan_seed(2);
  for (int i = 0; i < CASES; i++) {
    int states[VARIABLES];
    int64_t cost, best;
    bool exact;
    make_problem(&p, (int)plan_between(0, 40));
    best = brute_force(&p);
    solve(&p, SIZE_MAX, states, &cost, &exact);
    assert_true(exact);
    if (best >= TSR_COST_FORBIDDEN) {
      assert_true(cost >= TSR_COST_FORBIDDEN);
      forbidden++;
      continue;
    }
    if (cost != best) fail_msg("case %d: %" PRId64 ", the best is %" PRId64, i, cost, best);
    assert_int_equal(cost_of(&p, states), best);
  }
  assert_in_range(forbidden, CASES / 100, CASES / 2);
}

/* Whatever the limit: an assignment of the stated cost, the best one whenever it is called exact, and never a
 * forbidden one where tables forbid nothing. */
static void a_limit_of_the_width_keeps_it_valid(void **state) {
  (void)state;
  static problem p;
  int cut = 0;
  plan_seed(3);
  for (int i = 0; i < CASES; i++) {
    int states[VARIABLES];
    int64_t cost, best;
    bool exact;
    make_problem(&p, plan_chance(50) ? 0 : 10);
    best = brute_force(&p);
    solve(&p, (size_t)plan_between(1, 100), states, &cost, &exact);
    cut += !exact;
    assert_true(exact ? (cost < TSR_COST_FORBIDDEN ? cost : TSR_COST_FORBIDDEN) == best : cost >= best);
    if (cost < TSR_COST_FORBIDDEN) assert_int_equal(cost_of(&p, states), cost);
    bool forbids = false;
    for (int t = 0; t < p.table_count; t++)
      for (size_t at = 0, size = 1; at < size; at++) {
        if (!at)
          for (int j = 0; j < p.tables[t].arity; j++) size *= (size_t)p.domains[p.tables[t].variables[j]];
        forbids |= p.tables[t].cost[at] >= TSR_COST_FORBIDDEN;
      }
    if (!forbids) assert_true(cost < TSR_COST_FORBIDDEN);
  }
  assert_in_range(cut, CASES / 10, CASES);
}

/* Thousands of parts that all forbid: the sum must not run over. */
static void many_forbidden_tables(void **state) {
  (void)state;
  enum { COUNT = 5000 };
  static int domains[COUNT], states[COUNT];
  for (int v = 0; v < COUNT; v++) domains[v] = 1;
  for (int shared = 0; shared < 2; shared++) {
    tsr_factors *factors = tsr_factors_create(shared ? 1 : 300, domains);
    int64_t forbidden = TSR_COST_FORBIDDEN, cost;
    bool exact;
    for (int i = 0; i < COUNT; i++) {
      int variable = shared ? 0 : i % 300;
      assert_true(tsr_factors_add(factors, 1, &variable, &forbidden));
    }
    assert_true(tsr_factors_solve(factors, SIZE_MAX, states, &cost, &exact));
    assert_true(cost >= TSR_COST_FORBIDDEN);
    tsr_factors_destroy(&factors);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_to_brute_force),
      cmocka_unit_test(a_limit_of_the_width_keeps_it_valid),
      cmocka_unit_test(many_forbidden_tables),
  };
  return cmocka_run_group_tests_name("plan_factors", tests, plan_setup, plan_teardown);
}

/* Room runtime/plan: shares of one dimension against brute force over every division: random tables with
 * plateaus and zero times, capacities, a collective whose cost follows the largest share. */
#include "plan_support.h"

#include "plan/shares.h"

enum { MEMBERS = 4, GRAINS = 12, CASES = 10000 };

typedef struct case_data {
  tsr_shares_problem problem;
  int64_t rows[MEMBERS][GRAINS + 1];
  const int64_t *pointers[MEMBERS];
  int64_t capacity[MEMBERS];
  int64_t collective[GRAINS + 1];
} case_data;

static int64_t collective_of(void *user, int64_t largest) {
  return ((const case_data *)user)->collective[largest];
}

/* A row that never falls: mostly rising, now and then flat. */
static void fill_rising(int64_t *row, int64_t grains, int64_t most) {
  row[0] = plan_chance(80) ? 0 : plan_between(0, most);
  int flat = (int)plan_between(0, 90);
  for (int64_t x = 1; x <= grains; x++) row[x] = row[x - 1] + (plan_chance(flat) ? 0 : plan_between(0, most));
}

static void make_case(case_data *c) {
  int n = (int)plan_between(1, MEMBERS);
  int64_t grains = plan_between(0, n == MEMBERS ? 9 : GRAINS);
  bool equal = plan_chance(25), roomy = plan_chance(50);
  for (int r = 0; r < n; r++) {
    fill_rising(c->rows[r], grains, plan_chance(50) ? 3 : 1000);
    c->pointers[r] = equal ? c->rows[0] : c->rows[r];
    c->capacity[r] = roomy ? INT64_MAX : plan_between(0, grains);
  }
  fill_rising(c->collective, grains, plan_chance(50) ? 3 : 1000);
  c->problem = (tsr_shares_problem){.member_count = n,
                                    .grains = grains,
                                    .nanoseconds = c->pointers,
                                    .capacity = c->capacity,
                                    .collective = plan_chance(60) ? collective_of : NULL,
                                    .user = c};
}

/* How good a division is: time first, then the smaller largest share, then the evener. */
typedef struct rank {
  int64_t total, largest, squares;
} rank;

static rank rank_of(const case_data *c, const int64_t *shares) {
  rank found = {0, 0, 0};
  for (int r = 0; r < c->problem.member_count; r++) {
    if (c->pointers[r][shares[r]] > found.total) found.total = c->pointers[r][shares[r]];
    if (shares[r] > found.largest) found.largest = shares[r];
    found.squares += shares[r] * shares[r];
  }
  if (c->problem.collective) found.total += c->collective[found.largest];
  return found;
}

static bool better(rank a, rank b) {
  if (a.total != b.total) return a.total < b.total;
  if (a.largest != b.largest) return a.largest < b.largest;
  return a.squares < b.squares;
}

static void try_all(const case_data *c, int r, int64_t left, int64_t *shares, bool *found, rank *best) {
  if (r == MEMBERS) return; /* never: there are no more members */
  int64_t most = c->capacity[r] < left ? c->capacity[r] : left;
  if (r == c->problem.member_count - 1) {
    if (most < left) return;
    shares[r] = left;
    rank own = rank_of(c, shares);
    if (!*found || better(own, *best)) *best = own;
    *found = true;
    return;
  }
  for (shares[r] = 0; shares[r] <= most; shares[r]++)
    try_all(c, r + 1, left - shares[r], shares, found, best);
}

static void equal_to_brute_force(void **state) {
  (void)state;
  static case_data c;
  int infeasible = 0;
  plan_seed(1);
  for (int i = 0; i < CASES; i++) {
    int64_t shares[MEMBERS], tried[MEMBERS], time = -1, sum = 0;
    bool possible = false;
    rank best = {0, 0, 0};
    make_case(&c);
    try_all(&c, 0, c.problem.grains, tried, &possible, &best);
    bool solved = tsr_shares_solve(&c.problem, shares, &time);
    if (solved != possible) fail_msg("case %d: solved %d, possible %d", i, solved, possible);
    infeasible += !possible;
    if (!possible) continue;
    for (int r = 0; r < c.problem.member_count; r++) {
      assert_true(shares[r] >= 0 && shares[r] <= c.capacity[r]);
      sum += shares[r];
    }
    assert_int_equal(sum, c.problem.grains);
    rank own = rank_of(&c, shares);
    if (own.total != best.total)
      fail_msg("case %d: %" PRId64 ", the best is %" PRId64, i, own.total, best.total);
    if (time != best.total) fail_msg("case %d: says %" PRId64 ", it is %" PRId64, i, time, best.total);
    if (better(best, own)) fail_msg("case %d: a tie was not broken evenly", i);
  }
  assert_in_range(infeasible, CASES / 100, CASES / 2);
}

static void ties_go_to_the_even_and_to_lower_members(void **state) {
  (void)state;
  int64_t row[11], capacity[4] = {10, 10, 10, 10}, shares[4], time;
  const int64_t *rows[4] = {row, row, row, row};
  for (int x = 0; x <= 10; x++) row[x] = x ? 5 : 0; /* all times are alike */
  tsr_shares_problem problem = {.member_count = 4, .grains = 10, .nanoseconds = rows, .capacity = capacity};
  assert_true(tsr_shares_solve(&problem, shares, &time));
  int64_t even[] = {3, 3, 2, 2};
  assert_memory_equal(shares, even, sizeof even);
  capacity[1] = 1;
  assert_true(tsr_shares_solve(&problem, shares, &time));
  int64_t capped[] = {3, 1, 3, 3};
  assert_memory_equal(shares, capped, sizeof capped);
  capacity[0] = capacity[2] = capacity[3] = 2;
  assert_false(tsr_shares_solve(&problem, shares, &time));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_to_brute_force),
      cmocka_unit_test(ties_go_to_the_even_and_to_lower_members),
  };
  return cmocka_run_group_tests_name("plan_shares", tests, plan_setup, plan_teardown);
}

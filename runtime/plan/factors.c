#include "plan/factors.h"

#include <string.h>

#include "base/memory.h"

typedef struct factor {
  int arity;
  int variables[TSR_FACTOR_ARITY_MAX];
  int64_t *cost;
} factor;

/* How an eliminated variable depends on those that were left: read backwards once the others are known. */
typedef struct elimination {
  int variable;
  int arity;
  int variables[TSR_FACTOR_ARITY_MAX];
  int *best; /* [states of variables] */
} elimination;

struct tsr_factors {
  size_t variable_count;
  int *domains;
  bool *eliminated;
  size_t factor_count, factor_capacity;
  factor *factors;
  size_t elimination_count;
  elimination *eliminations;
};

tsr_factors *tsr_factors_create(size_t variable_count, const int *domains) {
  tsr_factors *factors = tsr_calloc(1, sizeof *factors);
  if (!factors) return NULL;
  factors->variable_count = variable_count;
  factors->domains = tsr_calloc(variable_count, sizeof *factors->domains);
  factors->eliminated = tsr_calloc(variable_count, sizeof *factors->eliminated);
  factors->eliminations = tsr_calloc(variable_count, sizeof *factors->eliminations);
  if (!factors->domains || !factors->eliminated || !factors->eliminations) {
    tsr_factors_destroy(&factors);
    return NULL;
  }
  memcpy(factors->domains, domains, variable_count * sizeof *domains);
  return factors;
}

void tsr_factors_destroy(tsr_factors **factors) {
  tsr_factors *f = *factors;
  if (!f) return;
  for (size_t i = 0; i < f->factor_count; i++) free(f->factors[i].cost);
  for (size_t i = 0; i < f->elimination_count; i++) free(f->eliminations[i].best);
  free(f->factors);
  free(f->eliminations);
  free(f->eliminated);
  free(f->domains);
  free(f);
  *factors = NULL;
}

static size_t table_size(const tsr_factors *factors, int arity, const int *variables) {
  size_t size = 1;
  for (int i = 0; i < arity; i++)
    if (__builtin_mul_overflow(size, (size_t)factors->domains[variables[i]], &size)) return SIZE_MAX;
  return size;
}

/* Appends a factor that takes the table. */
static bool append(tsr_factors *factors, int arity, const int *variables, int64_t *cost) {
  if (!TSR_GROW(factors->factors, factors->factor_count, factors->factor_capacity)) return false;
  factor *added = &factors->factors[factors->factor_count++];
  *added = (factor){.arity = arity, .cost = cost};
  memcpy(added->variables, variables, (size_t)arity * sizeof *variables);
  return true;
}

bool tsr_factors_add(tsr_factors *factors, int arity, const int *variables, const int64_t *cost) {
  size_t bytes = table_size(factors, arity, variables) * sizeof *cost;
  int64_t *copy = tsr_malloc(bytes);
  if (!copy) return false;
  memcpy(copy, cost, bytes);
  if (append(factors, arity, variables, copy)) return true;
  free(copy);
  return false;
}

static bool mentions(const factor *f, int variable) {
  for (int i = 0; i < f->arity; i++)
    if (f->variables[i] == variable) return true;
  return false;
}

/* The other variables that meet `variable` in some factor, ascending; -1 if there are too many. */
static int neighbours(const tsr_factors *factors, int variable, int *out) {
  int count = 0;
  for (size_t i = 0; i < factors->factor_count; i++) {
    const factor *f = &factors->factors[i];
    if (!mentions(f, variable)) continue;
    for (int j = 0; j < f->arity; j++) {
      int other = f->variables[j], place = count;
      while (place && out[place - 1] > other) place--;
      if (other == variable || (place && out[place - 1] == other)) continue;
      if (count == TSR_FACTOR_ARITY_MAX) return -1;
      memmove(out + place + 1, out + place, (size_t)(count - place) * sizeof *out);
      out[place] = other;
      count++;
    }
  }
  return count;
}

/* The variable whose elimination makes the smallest table; *size = that table times its own domain. */
static int cheapest(const tsr_factors *factors, size_t *size) {
  int best = -1;
  for (size_t v = 0; v < factors->variable_count; v++) {
    if (factors->eliminated[v]) continue;
    int others[TSR_FACTOR_ARITY_MAX + 1], count = neighbours(factors, (int)v, others);
    size_t own = count < 0 ? SIZE_MAX : table_size(factors, count, others);
    if (own < SIZE_MAX && __builtin_mul_overflow(own, (size_t)factors->domains[v], &own)) own = SIZE_MAX;
    if (best >= 0 && own >= *size) continue;
    best = (int)v;
    *size = own;
  }
  return best;
}

/* A factor seen from a loop over others (odometer) and the variable itself. */
typedef struct strides {
  const int64_t *cost;
  size_t of_variable;
  size_t of_others[TSR_FACTOR_ARITY_MAX];
} strides;

static strides strides_of(const tsr_factors *factors, const factor *f, int variable, int count,
                          const int *others) {
  strides s = {.cost = f->cost};
  size_t stride = 1;
  for (int i = f->arity - 1; i >= 0; i--) {
    if (f->variables[i] == variable) s.of_variable = stride;
    for (int j = 0; j < count; j++)
      if (f->variables[i] == others[j]) s.of_others[j] = stride;
    stride *= (size_t)factors->domains[f->variables[i]];
  }
  return s;
}

/* Removes the factors that mention variable. */
static void drop(tsr_factors *factors, int variable) {
  size_t kept = 0;
  for (size_t i = 0; i < factors->factor_count; i++) {
    if (mentions(&factors->factors[i], variable))
      free(factors->factors[i].cost);
    else
      factors->factors[kept++] = factors->factors[i];
  }
  factors->factor_count = kept;
}

static int64_t add_costs(int64_t a, int64_t b) {
  int64_t sum = a + b;
  return sum < TSR_COST_FORBIDDEN ? sum : TSR_COST_FORBIDDEN;
}

/* Minimises variable out of the sum of `met` tables, for every state of the others. */
static void minimise(const tsr_factors *factors, int variable, int count, const int *others,
                     const strides *met, size_t met_count, int64_t *cost, int *best) {
  int states[TSR_FACTOR_ARITY_MAX] = {0};
  size_t size = table_size(factors, count, others);
  for (size_t at = 0; at < size; at++) {
    int64_t least = INT64_MAX;
    for (int state = 0; state < factors->domains[variable]; state++) {
      int64_t sum = 0;
      for (size_t i = 0; i < met_count; i++) {
        size_t index = (size_t)state * met[i].of_variable;
        for (int j = 0; j < count; j++) index += (size_t)states[j] * met[i].of_others[j];
        sum = add_costs(sum, met[i].cost[index]);
      }
      if (sum < least) {
        least = sum;
        best[at] = state;
      }
    }
    cost[at] = least;
    for (int j = count - 1; j >= 0 && ++states[j] == factors->domains[others[j]]; j--) states[j] = 0;
  }
}

static bool eliminate(tsr_factors *factors, int variable) {
  int others[TSR_FACTOR_ARITY_MAX + 1], count = neighbours(factors, variable, others);
  size_t size = table_size(factors, count, others), met_count = 0;
  strides *met = tsr_calloc(factors->factor_count, sizeof *met);
  int64_t *cost = tsr_calloc(size, sizeof *cost);
  int *best = tsr_calloc(size, sizeof *best);
  if (!met || !cost || !best) {
    free(met);
    free(cost);
    free(best);
    return false;
  }
  for (size_t i = 0; i < factors->factor_count; i++)
    if (mentions(&factors->factors[i], variable))
      met[met_count++] = strides_of(factors, &factors->factors[i], variable, count, others);
  minimise(factors, variable, count, others, met, met_count, cost, best);
  free(met);

  elimination *record = &factors->eliminations[factors->elimination_count++];
  *record = (elimination){.variable = variable, .arity = count, .best = best};
  memcpy(record->variables, others, (size_t)count * sizeof *others);
  factors->eliminated[variable] = true;
  drop(factors, variable);
  if (append(factors, count, others, cost)) return true;
  free(cost);
  return false;
}

/* Fixes a variable at the state whose tables' minima sum to the least, when eliminating would take too much.
 */
static bool fix(tsr_factors *factors, int variable) {
  int best = 0;
  int64_t least = INT64_MAX;
  for (int state = 0; state < factors->domains[variable]; state++) {
    int64_t sum = 0;
    for (size_t i = 0; i < factors->factor_count; i++) {
      const factor *f = &factors->factors[i];
      if (!mentions(f, variable)) continue;
      size_t stride = strides_of(factors, f, variable, 0, NULL).of_variable;
      size_t size = table_size(factors, f->arity, f->variables);
      int64_t minimum = INT64_MAX;
      for (size_t at = 0; at < size; at++)
        if (at / stride % (size_t)factors->domains[variable] == (size_t)state && f->cost[at] < minimum)
          minimum = f->cost[at];
      sum = add_costs(sum, minimum);
    }
    if (sum < least) {
      least = sum;
      best = state;
    }
  }
  int64_t *only = tsr_calloc((size_t)factors->domains[variable], sizeof *only);
  if (!only) return false;
  for (int state = 0; state < factors->domains[variable]; state++)
    only[state] = state == best ? 0 : TSR_COST_FORBIDDEN;
  /* Its tables fall apart into slices at the fixed state. */
  for (size_t i = 0; i < factors->factor_count; i++) {
    factor *f = &factors->factors[i];
    if (!mentions(f, variable)) continue;
    size_t stride = strides_of(factors, f, variable, 0, NULL).of_variable, kept = 0;
    size_t size = table_size(factors, f->arity, f->variables);
    for (size_t at = 0; at < size; at++)
      if (at / stride % (size_t)factors->domains[variable] == (size_t)best) f->cost[kept++] = f->cost[at];
    int arity = 0;
    for (int j = 0; j < f->arity; j++)
      if (f->variables[j] != variable) f->variables[arity++] = f->variables[j];
    f->arity = arity;
  }
  if (append(factors, 1, &variable, only)) return eliminate(factors, variable);
  free(only);
  return false;
}

bool tsr_factors_solve(tsr_factors *factors, size_t table_limit, int *states, int64_t *cost, bool *exact) {
  *exact = true;
  for (size_t i = 0; i < factors->variable_count; i++) {
    size_t size = 0;
    int variable = cheapest(factors, &size);
    if (size > table_limit) *exact = false;
    if (size > table_limit ? !fix(factors, variable) : !eliminate(factors, variable)) return false;
  }
  *cost = 0;
  for (size_t i = 0; i < factors->factor_count; i++) *cost = add_costs(*cost, factors->factors[i].cost[0]);
  for (size_t i = factors->elimination_count; i-- > 0;) {
    const elimination *record = &factors->eliminations[i];
    size_t index = 0;
    for (int j = 0; j < record->arity; j++)
      index = index * (size_t)factors->domains[record->variables[j]] + (size_t)states[record->variables[j]];
    states[record->variable] = record->best[index];
  }
  return true;
}

/* plan/factors.h: the assignment of states to variables that minimises a sum of cost tables, by variable
 * elimination (Bertele and Brioschi 1972; "bucket elimination", Dechter 1999). */
#ifndef TSR_PLAN_FACTORS_H
#define TSR_PLAN_FACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tsr_factors tsr_factors;

/* A cost that forbids. Sums of forbidden costs do not overflow. */
#define TSR_COST_FORBIDDEN ((int64_t)1 << 52)
enum { TSR_FACTOR_ARITY_MAX = 24 };

/* domains[v] = number of states of variable v, at least 1. NULL = no memory. */
tsr_factors *tsr_factors_create(size_t variable_count, const int *domains);
void tsr_factors_destroy(tsr_factors **factors);

/* Adds a table over distinct variables; the first varies slowest. cost is copied. False = no memory. */
bool tsr_factors_add(tsr_factors *factors, int arity, const int *variables, const int64_t *cost);

/* Fills states[v], *cost with the minimum (>= TSR_COST_FORBIDDEN: nothing is allowed), and *exact: false if a
 * table would have had more than table_limit entries, and a variable was fixed by its own costs instead. Ties
 * go to lower states. Uses the tables up: call it once. False = no memory. */
bool tsr_factors_solve(tsr_factors *factors, size_t table_limit, int *states, int64_t *cost, bool *exact);

#endif

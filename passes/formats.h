/* formats.h - the outer layer of the search: number formats, where and only where the model says
 * `auto`.
 *
 * A combination is one format for each such setting. Each has a job of its own, because variables
 * differ, and a pool of its own (plan.h). Its cost is the time of a step times the prices of its
 * formats (formats.def); a budget selects the least cost that fits. So a combination that loses
 * precision has to pay for it, and the cost never rises with the budget: what fits in less fits in
 * more. Combinations are tried from the most precise on, and one that cannot win any more, by the
 * bytes that it could save at best, is never planned. */
#ifndef MTC_FORMATS_H
#define MTC_FORMATS_H
#include "plan.h"

/* The formats of a setting, most precise first: words, as a .mt file writes them; how many. */
int format_words(FormatSetting s, const char *const **words);
/* Those of them that `auto` may choose. */
int format_choices(FormatSetting s, const char *const **words);
/* "moments" */
const char *format_setting_name(FormatSetting s);
/* Does a setting of the job say `auto`? */
bool formats_open(const Job *job);

/* For many budgets. job: fresh, as `again` describes it; its open settings get the formats of the
 * first combination. Jobs live in a, what is weighed in scratch. */
typedef struct FormatsPool FormatsPool;
FormatsPool *formats_pool(Job *job, const JobArgs *again, Arena *a, Arena *scratch,
                          const PlanArgs *args);
/* The plan of the least cost within a budget, in a. Its job, FitResult.job, has the chosen formats,
 * FitResult.formats tells why. Without a plan: the floor of the smallest combination. */
FitResult formats_within(FormatsPool *p, Arena *a, int64_t budget_bytes);
/* Both at once; plan_fit where nothing is open. */
FitResult formats_fit(Job *job, const JobArgs *again, Arena *a, const PlanArgs *args);
/* What a result costs: seconds of all its phases' steps, times the prices of its open formats. */
double formats_cost(const FitResult *r);
/* Combinations that were planned so far. */
int formats_planned(const FormatsPool *p);

#endif

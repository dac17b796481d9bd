/* The scenario: lines `key = value` in the file $ROOFMON_PM_SCENARIO, read again at every question. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int scenario_text(const char *key, char *value, size_t room)
{
	const char *path = getenv("ROOFMON_PM_SCENARIO");
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[4096];
	int found = 0;
	if (!file)
		return 0;
	while (!found && fgets(line, sizeof line, file)) {
		char *equals = strstr(line, " = ");
		if (!equals)
			continue;
		*equals = 0;
		if (strcmp(line, key))
			continue;
		equals[3 + strcspn(equals + 3, "\n")] = 0;
		snprintf(value, room, "%s", equals + 3);
		found = 1;
	}
	fclose(file);
	return found;
}

static double scenario_number(const char *key, double otherwise)
{
	char value[64];
	return scenario_text(key, value, sizeof value) ? atof(value) : otherwise;
}

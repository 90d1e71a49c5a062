"""ROCm runners by GitHub Actions: plan jobs, start and watch runs, and collect their records."""

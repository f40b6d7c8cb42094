# Answers of R's loo to small problems, for tests/test_golden_loo.py.
# Run it by golden_loo.sh. Inputs are rounded before they are used, so the file holds them exactly.

suppressPackageStartupMessages(library(loo))
set.seed(20230511, kind = "Mersenne-Twister", normal.kind = "Inversion")

# Its stacking stops too early by default; this reaches the optimum for a few models.
PATIENT <- list(reltol = 1e-14, maxit = 10000)

# Pointwise log predictive densities of K normal models of the same n outcomes.
stacking_case <- function(n, shift, scale) {
  y <- rnorm(n, 0, 1.5)
  lpd <- sapply(seq_along(shift), function(k) {
    dnorm(y, shift[k] + 0.3 * rnorm(n), scale[k], log = TRUE)
  })
  lpd <- round(lpd, 6)
  list(
    lpd = lpd,
    stacking = as.numeric(stacking_weights(lpd, optim_control = PATIENT)),
    stacking_default = as.numeric(stacking_weights(lpd)),
    pseudobma = as.numeric(pseudobma_weights(lpd, BB = FALSE))
  )
}

# Log likelihoods (iteration, chain, observation) of a normal model; the last outcome is far out,
# and its importance weights have a heavy tail. Tails of 60 and 48 of the 400 draws: whole
# numbers, so that rounding up (loo) and down (ArviZ, lockquack) agree.
psis_case <- function(iterations = 100, chains = 4) {
  y <- c(rnorm(8), 3)
  mu <- matrix(0.15 * rnorm(iterations * chains), iterations)
  sigma <- matrix(exp(0.1 * rnorm(iterations * chains)), iterations)
  log_lik <- round(vapply(y, function(v) dnorm(v, mu, sigma, log = TRUE), mu), 5)
  answer <- function(r_eff) {
    fit <- suppressWarnings(loo(log_lik, r_eff = rep(r_eff, length(y))))
    list(
      r_eff = r_eff,
      elpd = as.numeric(fit$pointwise[, "elpd_loo"]),
      pareto_k = as.numeric(pareto_k_values(fit))
    )
  }
  list(
    log_lik = aperm(log_lik, c(2, 1, 3)), # (chain, draw, observation)
    answers = lapply(c(1, 25 / 16), answer)
  )
}

golden <- list(
  made_by = paste0("R ", getRversion(), ", loo ", packageVersion("loo")),
  stacking = list(
    stacking_case(50, c(-0.4, 0.4), c(1.2, 1.2)),
    stacking_case(200, c(0, 2), c(1, 2.5)),
    stacking_case(100, c(-2, 0, 2), c(0.8, 0.8, 0.8)),
    stacking_case(150, c(0, 0.1, 4), c(1.5, 1.4, 1)) # the last one gets no weight
  ),
  psis = psis_case()
)
path <- commandArgs(trailingOnly = TRUE)[1]
jsonlite::write_json(golden, path, digits = NA, auto_unbox = TRUE)

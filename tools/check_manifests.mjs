#!/usr/bin/env node
// Whether manifests are what Kubernetes' schema says: kinds, types and what is required, not unknown names.
//   npm install --no-save kubernetes-models js-yaml && tools/check_manifests.mjs examples/kubernetes/*.yaml
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// Of the directory where npm installed them.
const require = createRequire(join(process.cwd(), "package.json"));
const yaml = require("js-yaml");

function schemaOf(apiVersion, kind) {
  const module = require(`kubernetes-models/${apiVersion}`);
  if (!module[kind]) throw new Error(`there is no ${apiVersion} ${kind}`);
  return module[kind];
}

let wrong = 0;
for (const path of process.argv.slice(2)) {
  for (const manifest of yaml.loadAll(readFileSync(path, "utf8"))) {
    const name = `${path}: ${manifest.kind} ${manifest.metadata?.name}`;
    try {
      new (schemaOf(manifest.apiVersion, manifest.kind))(manifest).validate();
      console.log(`${name} is valid`);
    } catch (error) {
      ++wrong;
      console.log(`${name}: ${error.message}`);
    }
  }
}
process.exit(wrong > 0 || process.argv.length < 3 ? 1 : 0);
